/**
 * Tells ONNX Runtime to send nothing. From 1.29 on it writes an identifier of the machine below
 * HOME when loaded, and soon reports the models that it runs. It reads this variable only then.
 */
process.env.ORT_DISABLE_TELEMETRY = '1';
