/**
 * Loads ONNX Runtime's native part from an installed provider's folder: it looks for providers only
 * in its own folder, and npm empties that of the package. Import it before onnxruntime-node.
 */
import { registerHooks } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { BINDING_FILE } from '../../providers/runtime-folder.ts';

// argv: node, program, [folder,] pid of the parent
const [, , folder, parent] = process.argv;

if (folder !== undefined && parent !== undefined) {
  const url = pathToFileURL(path.join(folder, BINDING_FILE)).href;
  registerHooks({
    resolve: (specifier, context, nextResolve) =>
      specifier.endsWith(`/${BINDING_FILE}`)
        ? { url, shortCircuit: true }
        : nextResolve(specifier, context),
  });
}
