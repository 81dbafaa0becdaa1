/** Without a network. Needs: portal, operations. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { ROOT } from '../running-service.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { requireTeapot } from '../support/teapot.ts';
import {
  CONTROL_PLANE,
  evaluate,
  LOCKED,
  NODE,
  podman,
  podmanBytes,
  runContainer,
  skipWithoutPodman,
  stopContainer,
  tried,
  untilHealthy,
} from './podman.ts';

const TOKEN = 'a-token-of-the-tests-0123456789';
const START_MS_MAX = 280_000;
const DEMO = path.join(ROOT, 'docs/images/demo.jpg');
const PLANS = JSON.parse(readFileSync(path.join(ROOT, 'models/plans.json'), 'utf8'));

interface NodeInfo {
  readonly plan: string;
  readonly models: readonly { readonly model: string; readonly inputWidth: number }[];
  readonly limits: { readonly jxlPixelsMax: number };
}

const skip = skipWithoutPodman();
const test = ava.serial.skipIf(isNotTested(skip));

let controlPlane: string;
let node: string;

ava.serial.before(async t => {
  t.timeout(2 * START_MS_MAX);
  controlPlane = runContainer(CONTROL_PLANE, [...LOCKED, '--env', `MATTING_NODE_TOKEN=${TOKEN}`]);
  const beside = LOCKED.map(option => (option === 'none' ? `container:${controlPlane}` : option));
  node = runContainer(NODE, [
    ...beside,
    ...['--env', `MATTING_NODE_TOKEN=${TOKEN}`],
    ...['--env', 'MATTING_REGISTRY_ADDRESS=127.0.0.1:50050'],
    ...['--env', 'MATTING_NODE_ADVERTISE_ADDRESS=127.0.0.1:50051'],
  ]);
  await untilHealthy(node, 'readyz');
  await untilHealthy(controlPlane, 'readyz');
});

test('has no right, no way to gain one, the default seccomp filter, and a root that it cannot write', t => {
  for (const container of [controlPlane, node]) {
    const status = podman(['exec', container, 'cat', '/proc/1/status']);
    t.regex(status, /^Uid:\s4711\s/m);
    t.regex(status, /^CapEff:\s0{16}$/m);
    t.regex(status, /^NoNewPrivs:\s1$/m);
    t.regex(status, /^Seccomp:\s2$/m);
    t.not(tried(['exec', container, 'touch', '/app/x']).code, 0);
  }
});

test('starts the default plan from the weights inside', t => {
  const info = evaluate<NodeInfo>(
    node,
    `console.log(await (await fetch('http://127.0.0.1:50052/info')).text())`,
  );
  t.is(info.plan, 'standard');
  const planned = PLANS.standard.models.map(
    ({ model, inputSize }: { model: string; inputSize: number }) => [model, inputSize],
  );
  t.deepEqual(
    info.models.map(({ model, inputWidth }) => [model, inputWidth]),
    planned,
  );
  t.is(info.limits.jxlPixelsMax, 100_000_000, 'djxl and cjxl are there');
});

test('cuts a photo out for a customer of the REST interface, and spends a credit', async t => {
  const matting = (...args: string[]) => podman(['exec', controlPlane, 'matting', ...args]);
  matting('accounts', 'create', 'shop');
  matting('credits', 'grant', 'shop', '10');
  const { api_key: apiKey } = JSON.parse(matting('keys', 'create', '--account', 'shop', '--json'));
  const key = ['--env', `MATTING_API_KEY=${apiKey}`];
  const remove = ['exec', '--interactive', ...key, controlPlane, 'matting', 'remove', '-'];
  const png = podmanBytes(remove, readFileSync(DEMO));
  await requireTeapot(png);
  t.regex(matting('credits', 'show', 'shop'), /\b9\b/);
  t.regex(matting('nodes', 'list'), /live/);
  t.regex(matting('storage', 'check'), /ok/);
});

test('has every page and document that it reads at run time', t => {
  const pages = {
    ':8080/v1/openapi.json': 'application/json',
    ':8080/docs/errors': 'text/markdown',
    ':8080/account/sign-in': 'text/html',
    ':9464/metrics': 'text/plain',
  };
  const found = evaluate<Record<string, string>>(
    controlPlane,
    `const found = {};
       for (const page of ${JSON.stringify(Object.keys(pages))}) {
         const answer = await fetch('http://127.0.0.1' + page);
         found[page] = answer.status + ' ' + answer.headers.get('content-type').split(';')[0];
         // An unread answer would keep this process until the server closes.
         await answer.arrayBuffer();
       }
       console.log(JSON.stringify(found));`,
  );
  const wanted = Object.entries(pages).map(([page, type]) => [page, `200 ${type}`]);
  t.deepEqual(found, Object.fromEntries(wanted));
});

test('reaps what its children leave behind', async t => {
  // The shell ends first, so init adopts the sleep.
  podman(['exec', node, 'sh', '-c', 'sh -c "sleep 0.2 & exit 0"; true']);
  const left = () =>
    evaluate<string[]>(
      node,
      `import { readdirSync, readFileSync } from 'node:fs';
         const stat = pid => { try { return readFileSync('/proc/' + pid + '/stat', 'utf8'); } catch { return ''; } };
         const all = readdirSync('/proc').filter(name => /^\\d+$/.test(name)).map(stat);
         console.log(JSON.stringify(all.filter(text => /\\((sleep|sh)\\)/.test(text) || /\\) Z /.test(text))));`,
    );
  const isReaped = () => left().length === 0;
  await t.notThrowsAsync(
    until(isReaped, {
      timeoutMs: 60_000,
      what: 'no process is a zombie',
      detail: () => left().join(),
    }),
  );
});

test('drains and ends with 0 when it is stopped', t => {
  t.is(stopContainer(node), 0);
  t.is(stopContainer(controlPlane), 0);
});
