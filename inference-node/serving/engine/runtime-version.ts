/** The version of ONNX Runtime, as its package says it. */
import { createRequire } from 'node:module';

/** Read, not imported: the binding is for engines alone. */
export function runtimeVersion(): string {
  const require = createRequire(import.meta.url);
  return (require('onnxruntime-node/package.json') as { version: string }).version;
}
