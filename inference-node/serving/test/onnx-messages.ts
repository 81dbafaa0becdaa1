export * from '../onnx/gen/onnx.ts';
