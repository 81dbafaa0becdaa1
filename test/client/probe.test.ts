import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import { Replicas } from '../../control-plane/test/programs.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { ROOT } from '../running-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;
const execute = promisify(execFile);
const LAST = /^matting_probe_last_success_timestamp_seconds (\d+)\n$/;

test('the probe pays for a picture each time, and tells when the last one came back', async t => {
  const [port] = await findFreePorts(1);
  const url = `http://127.0.0.1:${port}`;
  const env = { MATTING_PORT: String(port), MATTING_BASE_URL: url };
  const replicas = await Replicas.open('sqlite', { replicas: 1, env });
  t.teardown(() => replicas.close());
  const node = await replicas.addNode({ imagesMax: 16 });
  let pictures = 0;
  node.script = async exchange => {
    pictures += 1;
    await exchange.cutOut();
  };
  const { token } = await replicas.createCaller(1000);
  const folder = await temporaryFolder(t);
  const probe = (key: string) =>
    execute('sh', ['deploy/systemd/matting-command', 'probe'], {
      cwd: ROOT,
      env: { PATH: process.env.PATH, PROBE_URL: url, PROBE_DIR: folder, MATTING_API_KEY: key },
    });
  const last = () => {
    const text = readFileSync(path.join(folder, 'matting-probe.prom'), 'utf8');
    return Number(LAST.exec(text)?.[1]);
  };
  await t.throwsAsync(probe('mk_nobody'));
  t.is(last(), 0);
  const beforeS = Math.floor(Date.now() / 1000);
  await probe(token);
  t.true(last() >= beforeS);
  const first = last();
  await new Promise(resolve => setTimeout(resolve, 1100));
  await probe(token);
  t.is(pictures, 2);
  t.true(last() > first);
  const kept = last();
  const { token: poor } = await replicas.createCaller(0);
  await t.throwsAsync(probe(poor));
  t.is(last(), kept);
});
