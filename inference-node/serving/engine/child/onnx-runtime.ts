/** ONNX Runtime, which sends nothing. The only file that imports the package, tests included. */
// First: it is read while what follows is loaded.
import './telemetry-off.ts';

export { env, InferenceSession, Tensor } from 'onnxruntime-node';
