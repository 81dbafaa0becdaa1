/** With the restrictions that docs promise, without a network. */
import ava from 'ava';
import { isNotTested } from '../support/skip.ts';
import {
  ALL_IN_ONE,
  CONTROL_PLANE,
  cutsTeapotOut,
  LOCKED,
  NODE,
  NODE_BARE,
  podman,
  skipWithoutPodman,
  tried,
} from './podman.ts';

const START_MS_MAX = 280_000;
const TOKEN = 'a-token-of-the-tests-0123456789';

const skip = skipWithoutPodman();
const test = ava.skipIf(isNotTested(skip));

for (const image of [CONTROL_PLANE, NODE, NODE_BARE, ALL_IN_ONE]) {
  test(`${image}: no root, an init, a health check, labels, nothing that builds`, t => {
    const [found] = JSON.parse(podman(['image', 'inspect', image]));
    const config = found.Config;
    t.regex(config.User, /^[1-9]\d*:[1-9]\d*$/);
    t.is(config.Entrypoint[0], '/usr/bin/tini');
    t.deepEqual(found.HealthCheck?.Test ?? found.Healthcheck?.Test, [
      'CMD',
      'matting-healthcheck',
      'livez',
    ]);
    t.is(config.StopSignal ?? 'SIGTERM', 'SIGTERM');
    const labels = 'title description licenses version revision base.name base.digest';
    for (const label of labels.split(' ')) {
      t.truthy(config.Labels[`org.opencontainers.image.${label}`], label);
    }
    const tools = 'npm npx corepack gcc cc make python3 pip curl wget git';
    const script = `for tool in ${tools}; do command -v $tool; done; true`;
    t.is(podman(['run', '--rm', ...LOCKED, '--entrypoint', 'sh', image, '-c', script]), '');
  });
}

test('the control plane has no runtime of models, the node no database and no bucket', t => {
  const has = (image: string) =>
    podman([
      ...['run', '--rm', ...LOCKED, '--entrypoint', 'ls', image],
      ...['/app/node_modules', '/app'],
    ]).split('\n');
  const controlPlane = has(CONTROL_PLANE);
  const ofNodes = ['onnxruntime-node', 'sharp', 'wasm-vips', 'tar', 'inference-node', 'models'];
  for (const name of ofNodes) {
    t.false(controlPlane.includes(name), name);
  }
  const node = has(NODE);
  for (const name of ['kysely', 'mysql2', 'fastify', 'control-plane'])
    t.false(node.includes(name), name);
});

const IMPORTS = `
  import { existsSync, globSync, readFileSync } from 'node:fs';
  import { isBuiltin, stripTypeScriptTypes } from 'node:module';
  import { fileURLToPath, pathToFileURL } from 'node:url';
  const named = /^(?:import|export|\\})(?:[^'\\n]*\\bfrom)? '([^']+)'|\\bimport\\(\\s*'([^']+)'/gm;
  const isThere = (name, from) => {
    try {
      return existsSync(fileURLToPath(import.meta.resolve(name, from)));
    } catch {
      return false;
    }
  };
  const missing = [];
  let imports = 0;
  const exclude = file => file === 'node_modules';
  for (const file of globSync('**/*.ts', { cwd: '/app', exclude })) {
    const code = stripTypeScriptTypes(readFileSync('/app/' + file, 'utf8'));
    for (const [, name, loaded] of code.matchAll(named)) {
      imports += 1;
      const imported = name ?? loaded;
      if (isBuiltin(imported) || isThere(imported, pathToFileURL('/app/' + file))) continue;
      missing.push(file + ' imports ' + imported);
    }
  }
  console.log(JSON.stringify({ imports, missing }));`;

for (const image of [CONTROL_PLANE, NODE_BARE, ALL_IN_ONE]) {
  test(`${image}: everything that its sources import, at once or when it is needed`, t => {
    const node = ['run', '--rm', ...LOCKED, '--entrypoint', 'node', image];
    const flags = ['--no-warnings', '--experimental-import-meta-resolve', '--input-type=module'];
    const { imports, missing } = JSON.parse(podman([...node, ...flags, '--eval', IMPORTS]));
    t.deepEqual(missing, []);
    t.true(imports > 100, 'imports are found');
  });
}

test('a node without weights says in a line which are missing, and ends', t => {
  const { code, output } = tried([
    ...['run', '--rm', ...LOCKED, '--env', `MATTING_NODE_TOKEN=${TOKEN}`, NODE_BARE],
  ]);
  t.is(code, 1, output);
  t.regex(output, /^inference node: the weights of isnet are not at \/models\/.*models fetch/m);
});

test('a program that cannot start says why and ends with 78', t => {
  for (const image of [CONTROL_PLANE, NODE]) {
    const { code, output } = tried(['run', '--rm', ...LOCKED, image]);
    t.is(code, 78, output);
    t.regex(output, /MATTING_NODE_TOKEN must be set/);
  }
});

test('the image that has both programs cuts a file out without a network', async t => {
  t.timeout(START_MS_MAX);
  await t.notThrowsAsync(cutsTeapotOut(t, ALL_IN_ONE));
});
