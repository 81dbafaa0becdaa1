/**
 * Tells ONNX Runtime to send nothing. From 1.29 on it writes an identifier of the machine below
 * HOME when it is loaded, and some ten seconds later begins to report the models that it runs. It
 * looks at this variable alone, and only while it is loaded. Also for a process that starts
 * another with ONNX Runtime.
 */
process.env.ORT_DISABLE_TELEMETRY = '1';
