/** The messages of ONNX, for tests that write or read a file by its fields. */
export * from '../onnx/gen/onnx.ts';
