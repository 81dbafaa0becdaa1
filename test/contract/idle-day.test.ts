/** Every age and interval of 20 s or more lasts half a second. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import { TEST_TOKEN } from '../../control-plane/nodes/test/scripted-node.ts';
import { ROOT } from '../running-service.ts';
import { Program } from '../support/program.ts';

const test = ava.serial;

const WARN = 40;
const SHORT_DAY = ['--import', path.join(ROOT, 'test/support/short-day.ts')];
const FAKE_MODULES = [
  '--import',
  path.join(ROOT, 'inference-node/serving/test/fake-modules-hook.ts'),
];
const directory = mkdtempSync(path.join(tmpdir(), 'matting-idle-'));
const programs: Program[] = [];

function begin(name: string, imports: readonly string[], env: Record<string, string>): Program {
  const main = path.join(ROOT, name, 'main.ts');
  const shared = { MATTING_NODE_TOKEN: TEST_TOKEN, MATTING_LOG_LEVEL: 'debug' };
  const program = new Program(name, [...imports, main], { ...shared, ...env });
  programs.push(program);
  program.start();
  return program;
}

test.after.always(async () => {
  for (const program of programs) await program.kill();
  rmSync(directory, { recursive: true, force: true });
});

test('an idle day logs nothing above info', async t => {
  const control = begin('control-plane', SHORT_DAY, {
    MATTING_DATA_DIR: directory,
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://127.0.0.1',
  });
  const ports = await control.line<{ http: number; registry: number }>('listening');
  const node = begin('inference-node', [...SHORT_DAY, ...FAKE_MODULES], {
    MATTING_NODE_ID: 'idle',
    MATTING_NODE_PORT: '0',
    MATTING_NODE_HTTP_PORT: '0',
    MATTING_MODEL_DIR: directory,
    // An unsafe HEIC decoder would rightly warn.
    MATTING_HEIF: 'off',
    MATTING_REGISTRY_ADDRESS: `127.0.0.1:${ports.registry}`,
  });
  const ready = async () => (await fetch(`http://127.0.0.1:${ports.http}/readyz`)).ok;
  await control.line('node state', { state: 'SERVING' });
  for (let look = 0; look < 40; look += 1) {
    t.true(await ready());
    await delay(200);
  }
  await node.stop();
  await control.stop();
  for (const { lines } of programs) {
    t.true(lines.length > 4);
    t.deepEqual(
      lines.filter(({ level }) => level >= WARN),
      [],
    );
  }
});
