/** The only file that imports the package, tests included. */
// First: the package reads the variable while it loads.
import './telemetry-off.ts';

export { env, InferenceSession, Tensor } from 'onnxruntime-node';
