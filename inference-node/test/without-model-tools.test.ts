/** A copy of the program without model-tools: it starts from a prepared folder. */
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { makeTinyModel } from '@matting/model-tools/test/fake-registry.ts';
import { weightsDirectory } from '@matting/serving/prepared/weights-cache.ts';
import { startProgram } from '@matting/serving/test/node-program.ts';
import { linkPackages } from '@matting/test-support/linked-packages.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');
const MODEL_TOOLS = 'inference-node/model-tools';
const COPIED = [
  ...['package.json', 'program', 'proto', 'models'],
  ...['main.ts', 'config.ts', 'serving'].map(name => `inference-node/${name}`),
];

const tree = await temporaryFolder({ teardown: test.after.always });
const modelDir = path.join(tree, 'model-cache');
const env = {
  MATTING_MODEL: 'tiny',
  MATTING_MODEL_DIR: modelDir,
  MATTING_EXECUTION_PROVIDER: 'cpu',
  MATTING_ENGINES: '1',
  MATTING_PICTURE_WORKERS: '1',
};
const start = (more: Record<string, string> = {}) =>
  startProgram({ ...env, ...more }, { main: path.join(tree, 'inference-node/main.ts') });

const copy = (name: string) =>
  cp(path.join(ROOT, name), path.join(tree, name), { recursive: true });

test.before(async () => {
  for (const name of COPIED) await copy(name);
  linkPackages(tree);
  const { manifest, weights } = await makeTinyModel(1000);
  await mkdir(path.join(tree, 'models/tiny'));
  await writeFile(path.join(tree, 'models/tiny/manifest.json'), JSON.stringify(manifest));
  const folder = weightsDirectory(modelDir, manifest);
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, manifest.graph.file), weights);
});

test('a node does not start with a model that is not prepared, and says what to do', async t => {
  const { code, stderr } = await start().exited;
  t.is(code, 1);
  t.regex(
    stderr,
    /^inference node: tiny is not prepared for this machine, .*models fetch tiny.*\n$/,
  );
});

test('a start with the tools prepares, and the next one needs no tools', async t => {
  await copy(MODEL_TOOLS);
  const preparing = start();
  await preparing.until('serving');
  preparing.child.kill('SIGTERM');
  t.is((await preparing.exited).code, 0);
  await rm(path.join(tree, MODEL_TOOLS), { recursive: true });
  const prepared = start();
  const { node } = await prepared.until('serving');
  t.truthy(node);
  prepared.child.kill('SIGTERM');
  t.is((await prepared.exited).code, 0);
});
