import { type PreparedModel, runtimeOf } from '@matting/serving/models/prepared-model.ts';

const RUNTIME_NAMES = { onnxruntime: 'ONNX Runtime', openvino: 'OpenVINO' } as const;

export function describeRuntime(prepared: PreparedModel): string {
  const { runtimeFallback } = prepared;
  const why = runtimeFallback === undefined ? '' : ` (${runtimeFallback})`;
  return `${RUNTIME_NAMES[runtimeOf(prepared)]}${why}`;
}
