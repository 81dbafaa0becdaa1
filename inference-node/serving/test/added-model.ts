/** A tiny graph as an operator's own model: manifest and weights where `models add` puts them. */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import {
  encodeTinyModel,
  TINY_LICENCE,
  type TinyModelOptions,
} from '@matting/test-support/tiny-model.ts';
import { sha256 } from './test-node.ts';

export interface AddedFolders {
  readonly addedModelsDir: string;
  readonly modelDir: string;
}

export async function addTinyModel(
  folders: AddedFolders,
  name: string,
  fields: object = {},
  options: TinyModelOptions = {},
): Promise<void> {
  await addGraph(folders, name, encodeTinyModel(options), fields);
}

/** A graph from `input` to `output` of 32 pixels a side. */
export async function addGraph(
  { addedModelsDir, modelDir }: AddedFolders,
  name: string,
  bytes: Uint8Array,
  fields: object = {},
): Promise<void> {
  const manifest = {
    ...{ name, version: '1.0.0', description: 'A tiny graph.', goodFor: 'tests' },
    source: { type: 'file' },
    files: [{ name: 'tiny.onnx', bytes: bytes.length, sha256: sha256(bytes).toString('hex') }],
    graph: {
      ...{ file: 'tiny.onnx', precision: 'fp32', inputName: 'input', outputName: 'output' },
      ...{ inputWidth: 32, inputHeight: 32, dynamic: false },
    },
    precisions: ['fp32'],
    normalisation: { mean: [0, 0, 0], std: [255, 255, 255] },
    ...{ colourOrder: 'rgb', activation: 'none', licence: TINY_LICENCE, ...fields },
  };
  const weights = path.join(modelDir, name, '1.0.0', 'weights');
  await mkdir(weights, { recursive: true });
  await writeFile(path.join(weights, 'tiny.onnx'), bytes);
  await mkdir(path.join(addedModelsDir, name), { recursive: true });
  const file = path.join(addedModelsDir, name, 'manifest.json');
  await writeFile(file, JSON.stringify(manifest));
}
