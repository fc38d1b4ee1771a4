'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const [SOURCE, HOST, SINK] = [1, 2, 4];
const $ = id => document.getElementById(id);
const number = v => v === null ? '∞' : v >= 100 ? Math.round(v).toLocaleString('en') : String(+v.toPrecision(3));
const percent = v => Math.round(v * 100) + ' %';

function make(name, attributes, parent) {
  const one = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) one.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(one);
  return one;
}
function element(name, text, parent, kind) {
  const one = document.createElement(name);
  if (text !== undefined) one.textContent = text;
  if (kind) one.className = kind;
  if (parent) parent.appendChild(one);
  return one;
}
const short = (text, most) => text.length > most ? text.slice(0, most - 1) + '…' : text;

/* the cost space: drawn anew at every zoom, so that marks and names keep their size */
const svg = $('map').querySelector('svg');
let view = data.frame.slice(), picked = null;
const few = data.nodes.length <= 80;
const by = new Map(data.nodes.map((node, k) => [node.id, k]));

function shade(used) {
  const stops = data.colours.hosts;
  let k = 1;
  while (k < stops.length - 1 && used > stops[k][0]) k++;
  const [a, b] = [stops[k - 1], stops[k]], t = Math.min(1, Math.max(0, (used - a[0]) / (b[0] - a[0])));
  const parts = [1, 3, 5].map(i => [a, b].map(stop => parseInt(stop[1].slice(i, i + 2), 16)));
  return 'rgb(' + parts.map(([x, y]) => Math.round(x + t * (y - x))).join(',') + ')';
}
function scale() {
  const box = svg.getBoundingClientRect(), width = Math.max(box.width, 50), height = Math.max(box.height, 50), edge = 46;
  const [x0, x1, y0, y1] = view;
  const by_ms = Math.min((width - 2 * edge) / Math.max(x1 - x0, 1e-9), (height - 2 * edge) / Math.max(y1 - y0, 1e-9));
  return {width, height, by_ms, x: x => width / 2 + (x - (x0 + x1) / 2) * by_ms,
          y: y => height / 2 - (y - (y0 + y1) / 2) * by_ms};
}
function ticks(low, high, most) {
  const raw = (high - low) / most, ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * ten).find(s => s >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(+at.toPrecision(12));
  return found;
}
function draw() {
  svg.textContent = '';
  const s = scale();
  const grid = make('g', {stroke: data.colours.grid}, svg);
  const middle_x = (view[0] + view[1]) / 2, middle_y = (view[2] + view[3]) / 2;
  for (const at of ticks(middle_x - s.width / 2 / s.by_ms, middle_x + s.width / 2 / s.by_ms, 9)) {
    make('line', {x1: s.x(at), x2: s.x(at), y1: 0, y2: s.height}, grid);
    const tick = make('text', {x: s.x(at) + 3, y: s.height - 5, class: 'tick', stroke: 'none'}, svg);
    tick.textContent = at + ' ms';
    if (s.x(at) + 3 + tick.getComputedTextLength() > s.width) tick.remove();
  }
  for (const at of ticks(middle_y - s.height / 2 / s.by_ms, middle_y + s.height / 2 / s.by_ms, 7))
    make('line', {x1: 0, x2: s.width, y1: s.y(at), y2: s.y(at)}, grid);
  const boxes = [], clear = (x, y, r) => boxes.push([x - r, y - r, x + r, y + r]);
  const frame = svg.getBoundingClientRect(), buttons = $('buttons').getBoundingClientRect();
  boxes.push([buttons.left - frame.left, buttons.top - frame.top, buttons.right - frame.left, buttons.bottom - frame.top]);
  const strongest = Math.max(...data.flows.map(f => f[4]), 1e-300);
  const crowd = Math.min(1, Math.sqrt(60 / Math.max(data.flows.length, 1)));  // many lines: thin and pale ones
  for (const flow of data.flows) {
    const [a, b, c, d] = [s.x(flow[0]), s.y(flow[1]), s.x(flow[2]), s.y(flow[3])];
    const strength = Math.sqrt(flow[4] / strongest), out = flow[5] === 1, colour = out ? data.colours.out : data.colours.in;
    const far = picked !== null && picked !== flow[6] && picked !== flow[7];
    const line = make('g', {class: far ? 'flow dim' : 'flow', stroke: colour, fill: colour}, svg);
    make('line', {x1: a, y1: b, x2: c, y2: d, 'stroke-width': 0.8 + 3 * strength * crowd,
                  'stroke-opacity': few ? .85 : (.25 + .5 * strength) * (.3 + .7 * crowd)}, line);
    const length = Math.hypot(c - a, d - b);
    if (length > 34) {
      const [ux, uy] = [(c - a) / length, (d - b) / length], [x, y] = [c - 13 * ux, d - 13 * uy], w = 3.2 + 2 * strength;
      make('path', {stroke: 'none', d: `M${x},${y}L${x - 9 * ux - w * uy},${y - 9 * uy + w * ux}L${x - 9 * ux + w * uy},${y - 9 * uy - w * ux}Z`}, line);
    }
    const name = k => k < 0 ? 'several nodes' : data.nodes[k].id;
    tell(line, () => `${name(flow[6])} → ${name(flow[7])}\n${number(flow[4])} tuples/s ${out ? 'joined there, results to the sink' : 'to be joined'}`);
  }
  const marks = [];
  const layer = k => data.nodes[k].kind & SINK ? 3 : data.nodes[k].kind & HOST ? 2 : data.nodes[k].kind & SOURCE ? 1 : 0;
  data.nodes.map((_, k) => k).sort((a, b) => layer(a) - layer(b)).forEach(k => {
    const node = data.nodes[k];
    const [x, y] = [s.x(node.x), s.y(node.y)];
    if (x < -20 || y < -20 || x > s.width + 20 || y > s.height + 20) return;
    const far = picked !== null && picked !== k && !data.flows.some(f => f[6] === k && f[7] === picked || f[7] === k && f[6] === picked);
    const group = make('g', {class: far ? 'dim' : '', 'data-node': node.id, stroke: '#fff', 'stroke-width': 1}, svg);
    let r = few ? 4 : 2.5;
    if (node.kind & HOST) {
      r = (few ? 6 : 3) + (few ? 7 : 4) * Math.sqrt(node.load / data.most);
      make('circle', {cx: x, cy: y, r, fill: node.over ? data.colours.over : shade(node.used)}, group);
    }
    if (node.kind & SINK) {
      const half = node.kind & HOST ? 6 : 9;  /* within the circle of a sink that hosts */
      r = Math.max(r, half);
      make('path', {d: `M${x},${y - half}L${x + half},${y}L${x},${y + half}L${x - half},${y}Z`, fill: data.colours.sink}, group);
    }
    if (node.kind & SOURCE) {
      const half = few ? 4.5 : 2.5;
      make('rect', {x: x - half, y: y - half, width: 2 * half, height: 2 * half, fill: data.colours.source}, group);
      r = Math.max(r, half);
    }
    if (!node.kind) make('circle', {cx: x, cy: y, r, fill: data.colours.idle}, group);
    tell(group, () => about(node));
    group.addEventListener('click', () => pick(picked === k ? null : k));
    marks.push([node, k, x, y, r]);
    clear(x, y, r);
  });
  for (const [x, y, text] of data.virtual) {
    const [a, b] = [s.x(x), s.y(y)];
    const group = make('g', {fill: 'none', stroke: data.colours.virtual, 'stroke-width': few ? 1.6 : .9, 'pointer-events': 'all'}, svg);
    make('path', {d: `M${a},${b - 6}L${a + 5.5},${b + 4}L${a - 5.5},${b + 4}Z`}, group);
    tell(group, () => text + '\nwould sit here if there were nodes everywhere');
    clear(a, b, 5);
  }
  /* names: the important ones first; each on the first side where it hides nothing and is not cut off */
  const rank = ([node]) => (node.kind & SINK ? 0 : node.kind & HOST ? 1 : node.kind & SOURCE ? 2 : 3) - node.load / data.most / 2;
  let named = 0;
  for (const [node, k, x, y, r] of marks.sort((a, b) => rank(a) - rank(b))) {
    if (named >= (few ? 120 : 40)) break;
    const label = make('text', {class: 'name'}, svg);
    label.textContent = short(node.id, 34);
    const width = label.getComputedTextLength() + 2;
    const sides = [[x + r + 4, y + 4], [x - r - 4 - width, y + 4], [x - width / 2, y - r - 5], [x - width / 2, y + r + 14],
                   [x + r + 1, y - r - 2], [x + r + 1, y + r + 12], [x - r - 1 - width, y - r - 2], [x - r - 1 - width, y + r + 12]];
    const free = sides.find(([a, b]) => a > 2 && b > 14 && a + width < s.width - 2 && b < s.height - 4 &&
      !boxes.some(o => a < o[2] && a + width > o[0] && b - 11 < o[3] && b + 3 > o[1]));
    if (!free) { label.remove(); continue; }
    boxes.push([free[0], free[1] - 11, free[0] + width, free[1] + 3]);
    label.setAttribute('x', free[0]);
    label.setAttribute('y', free[1]);
    named++;
  }
}
function about(node) {
  const lines = [node.id, `capacity ${number(node.limit)} tuples/s` + (node.load > 0 ? `, ${percent(node.used)} used` : '')];
  if (node.closed) lines.push('hosts no joins');
  for (const [name, rate] of node.sources) lines.push(`source ${name}: ${number(rate)} tuples/s`);
  if (node.more) lines.push(`… and ${node.more} more sources`);
  const mine = data.rows.filter(row => row[3] === node.id);
  if (mine.length) lines.push(`load ${number(node.load)} tuples/s, of ${mine.length} joins:`);
  for (const row of mine.slice(0, 8)) lines.push(`  ${row[1]} ⋈ ${row[2]}: ${percent(row[4])}`);
  if (mine.length > 8) lines.push(`  … and ${mine.length - 8} more (click: in the table)`);
  return lines.join('\n');
}
function tell(one, text) {
  one.addEventListener('pointermove', event => {
    const tip = $('tip');
    tip.textContent = text();
    tip.style.display = 'block';
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
  });
  one.addEventListener('pointerleave', () => { $('tip').style.display = 'none'; });
}
function pick(k) {
  picked = k;
  $('search').value = k === null ? '' : data.nodes[k].id;
  draw();
  fill();
}
function zoom(factor, x, y) {
  view = [x + (view[0] - x) * factor, x + (view[1] - x) * factor, y + (view[2] - y) * factor, y + (view[3] - y) * factor];
  draw();
}
const centre = () => [(view[0] + view[1]) / 2, (view[2] + view[3]) / 2];
$('in').onclick = () => zoom(.7, ...centre());
$('out').onclick = () => zoom(1 / .7, ...centre());
$('fit').onclick = () => { view = data.frame.slice(); draw(); };
$('all').onclick = () => { view = data.all.slice(); draw(); };
svg.addEventListener('wheel', event => {
  event.preventDefault();
  const s = scale(), box = svg.getBoundingClientRect(), [cx, cy] = centre();
  zoom(Math.exp(event.deltaY * .0015), cx + (event.clientX - box.left - s.width / 2) / s.by_ms,
       cy - (event.clientY - box.top - s.height / 2) / s.by_ms);
}, {passive: false});
svg.addEventListener('pointerdown', event => {
  if (event.target !== svg && event.target.closest('[data-node]')) return;
  const s = scale(), start = [event.clientX, event.clientY], from = view.slice();
  svg.classList.add('drag');
  const move = e => {
    const [dx, dy] = [(e.clientX - start[0]) / s.by_ms, (e.clientY - start[1]) / s.by_ms];
    view = [from[0] - dx, from[1] - dx, from[2] + dy, from[3] + dy];
    draw();
  };
  const end = () => { svg.classList.remove('drag'); removeEventListener('pointermove', move); removeEventListener('pointerup', end); };
  addEventListener('pointermove', move);
  addEventListener('pointerup', end);
});
addEventListener('resize', draw);

/* figures and how full the hosts are */
for (const [name, value, wrong] of data.figures) {
  element('dt', name, $('figures'));
  element('dd', value, $('figures'), wrong ? 'wrong' : '');
}
const MOST_BARS = 40;
function bars(where, nouns, rows) {
  for (const [name, load, limit, share, over, click] of rows.slice(0, MOST_BARS)) {
    const bar = element('div', undefined, $(where), 'bar'), line = element('div', undefined, bar);
    element('b', name, line);
    element('span', `${number(load)} / ${number(limit)}`, line, over ? 'wrong' : '');
    const fill = element('i', undefined, bar);
    fill.style.setProperty('--u', Math.min(100, share * 100) + '%');
    fill.style.setProperty('--c', over ? data.colours.over : data.colours.hosts[2][1]);
    bar.onclick = click;
  }
  if (rows.length > MOST_BARS) element('p', `and ${rows.length - MOST_BARS} more ${nouns}`, $(where), 'note');
}
const show = k => () => pick(picked === k ? null : k);
bars('bars', 'hosts', data.nodes.map((node, k) => [node.id, node.load, node.limit, node.used, node.over, show(k), node.kind])
  .filter(row => row[6] & HOST).sort((a, b) => b[3] - a[3]));
bars('sinks', 'sinks', data.sinks.map(([id, results, hosted, limit, over]) =>
  [id, results + hosted, limit, limit === null ? 0 : (results + hosted) / limit, over, show(data.nodes.findIndex(node => node.id === id))]));

/* the table: found by every word, sorted by any column */
const body = $('table').tBodies[0], heads = [...$('table').tHead.rows[0].cells];
let order = null, down = false, most = 200;
function fill() {
  const words = $('search').value.toLowerCase().split(/\s+/).filter(Boolean), whole = $('search').value;
  let rows = data.rows.filter(row => picked !== null && data.nodes[picked].id === whole
    ? row[3] === whole || row[3].includes(whole) || row[1] === whole || row[2] === whole || has(row, words)
    : has(row, words));
  if (order !== null) {
    const sign = down ? -1 : 1;
    rows = rows.slice().sort((a, b) => sign * (order < 4 ? String(a[order]).localeCompare(b[order], 'en', {numeric: true}) : a[order] - b[order]));
  }
  body.textContent = '';
  for (const row of rows.slice(0, most)) {
    const line = body.insertRow();
    row.forEach((value, k) => element('td', k < 4 ? value : k === 4 ? percent(value) : number(value), line, k < 4 ? '' : 'n'));
    line.onmouseenter = () => { const k = by.get(row[3]); if (k !== undefined && picked === null) highlight(k); };
    line.onmouseleave = () => { if (picked === null) highlight(null); };
  }
  const left_out = data.total - data.rows.length;
  $('count').textContent = `${rows.length.toLocaleString('en')} of ${data.rows.length.toLocaleString('en')} placements` +
    (rows.length > most ? `, the first ${most} shown` : '') +
    (left_out ? `; ${left_out.toLocaleString('en')} smaller ones are not in this page: nova plan -o plan.csv` : '');
  $('more').hidden = rows.length <= most;
}
function has(row, words) {
  const text = `${row[0]} ${row[1]} ${row[2]} ${row[3]}`.toLowerCase();
  return words.every(word => text.includes(word));
}
function highlight(k) {
  for (const one of svg.querySelectorAll('[data-node]'))
    one.classList.toggle('dim', k !== null && one.dataset.node !== data.nodes[k].id);
}
heads.forEach((head, k) => head.onclick = () => {
  down = order === k ? !down : k >= 4;
  order = k;
  heads.forEach(one => one.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  fill();
});
$('search').oninput = () => { if (picked !== null) { picked = null; draw(); } fill(); };
$('more').onclick = () => { most *= 5; fill(); };
fill();
draw();
