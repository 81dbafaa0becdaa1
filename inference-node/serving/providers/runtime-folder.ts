/** Tells an engine's process where a provider's copy of ONNX Runtime lies. */

/** ONNX Runtime's binding to Node: its file in the package, and in the folder of a provider. */
export const BINDING_FILE = 'onnxruntime_binding.node';

/** A folder to load the binding from; an engine's argument (engine/child/runtime-redirect.ts). */
export const RUNTIME_FOLDER_VARIABLE = 'ENGINE_RUNTIME_FOLDER';
