/** ONNX Runtime's binding to Node, in the package and in a provider's folder. */
export const BINDING_FILE = 'onnxruntime_binding.node';

/** In `childEnv`: the binding's folder. An engine gets it as an argument (runtime-redirect.ts). */
export const RUNTIME_FOLDER_VARIABLE = 'ENGINE_RUNTIME_FOLDER';
