"""The data pipeline on Spark: measurements in, cost space, joins running. The only room that imports pyspark."""
