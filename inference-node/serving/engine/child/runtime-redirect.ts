/**
 * Loads ONNX Runtime's native part from the folder of an installed provider, where a copy of it
 * lies: it looks for providers beside itself alone, and npm empties its package's folder. Imported
 * before anything that imports onnxruntime-node. Without a folder the package's files are loaded.
 */
import { registerHooks } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { BINDING_FILE } from '../../providers/runtime-folder.ts';

// node, program, [folder,] pid of the parent
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
