/**
 * Disables ONNX Runtime's telemetry. From 1.29 on, loading writes a machine identifier below HOME,
 * and the runtime soon reports the models that it runs. It reads this variable only while it loads.
 */
process.env.ORT_DISABLE_TELEMETRY = '1';
