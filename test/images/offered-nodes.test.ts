import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { parse } from 'yaml';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { ROOT } from '../tidy/source-files.ts';

interface Composed {
  readonly services: Readonly<Record<string, { readonly environment: Record<string, string> }>>;
}

test('compose runs two nodes of the first model that is offered, and one of each other', async t => {
  const folder = await temporaryFolder(t);
  const made = ['.env', 'compose.override.yaml', 'prometheus-models.yaml'];
  const [file, override, targets] = made.map(name => path.join(folder, name));
  cpSync(path.join(ROOT, 'deploy/compose'), folder, { recursive: true });
  for (const name of made) rmSync(path.join(folder, name), { force: true });
  writeFileSync(path.join(folder, 'docker'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
  const up = (line = '') => {
    writeFileSync(String(file), `NODE_TOKEN=a\n${line}\n`);
    const env = { PATH: `${folder}:${process.env.PATH}` };
    return spawnSync('sh', [path.join(folder, 'up'), 'node-1'], { encoding: 'utf8', env });
  };
  t.regex(up().stdout, /^compose up --detach node-1$/m);
  t.false(existsSync(String(override)));
  up('MODELS_OFFERED="best, birefnet-lite,fast"');
  const { services } = parse(readFileSync(String(override), 'utf8')) as Composed;
  const { prometheus, ...nodes } = services;
  t.deepEqual(Object.keys(prometheus ?? {}), ['volumes']);
  t.deepEqual(parse(readFileSync(String(targets), 'utf8')), [
    { targets: ['node-birefnet-lite:50052'] },
    { targets: ['node-fast:50052'] },
  ]);
  const models = Object.entries(nodes).map(([name, { environment }]) => {
    return [name, environment.MATTING_MODEL, environment.MATTING_NODE_MEMORY_PERCENT];
  });
  t.deepEqual(models, [
    ['node-1', 'best', '25'],
    ['node-2', 'best', '25'],
    ['node-birefnet-lite', 'birefnet-lite', '25'],
    ['node-fast', 'fast', '25'],
  ]);
  // YAML anchors end with their file, so common parts are repeated.
  const composed = parse(readFileSync(path.join(folder, 'compose.yaml'), 'utf8'), { merge: true });
  const { 'node-1': own } = (composed as Composed).services;
  const { 'node-fast': other } = services;
  t.deepEqual({ ...other, environment: {} }, { ...own, environment: {} });
  t.is(other?.environment.MATTING_NODE_ADVERTISE_ADDRESS, 'node-fast:50051');
  up();
  t.false(existsSync(String(override)) || existsSync(String(targets)));
  t.regex(up('MODELS_FETCH=best').stderr, /take MODELS_FETCH out of \.env: MODELS_OFFERED/);
  t.is(up('MODEL_IDLE_MS=1').status, 78);
  writeFileSync(String(override), 'services: {}\n');
  const { status, stderr } = up('MODELS_OFFERED=best');
  t.deepEqual([status, stderr.includes('move it away')], [73, true]);
  t.is(readFileSync(String(override), 'utf8'), 'services: {}\n');
});

test('the unit of a further model is that of a node, but for its name, model and ports', t => {
  const linesOf = (unit: string) =>
    readFileSync(path.join(ROOT, `deploy/systemd/${unit}.service`), 'utf8')
      .split('\n')
      .filter(line => !line.startsWith('#'))
      .map(line => line.replace(/^(Exec\w+)=\/usr\/bin\/env .* (?=\/bin\/sh )/, '$1='));
  const own = linesOf('matting-node');
  t.deepEqual(
    linesOf('matting-model@').filter(line => !own.includes(line)),
    [
      'Description=Matting inference node of %i',
      'Environment=MATTING_NODE_ID=%l MATTING_NODE_PORT=0 MATTING_NODE_HTTP_PORT=0',
      'EnvironmentFile=-/etc/matting/model-%i.env',
    ],
  );
  t.deepEqual(
    own.filter(line => !linesOf('matting-model@').includes(line)),
    ['Description=Matting inference node'],
  );
});
