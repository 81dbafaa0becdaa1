/** ONNX Runtime's binding to Node, in the package and in a provider's folder. */
export const BINDING_FILE = 'onnxruntime_binding.node';

/** Folder of the binding, an engine's argument (engine/child/runtime-redirect.ts). */
export const RUNTIME_FOLDER_VARIABLE = 'ENGINE_RUNTIME_FOLDER';
