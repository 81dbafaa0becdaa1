/** The images of `make images`, run as strictly as they promise to bear, without any network. */
import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { ROOT, until } from '../support/running-service.ts';
import {
  ALL_IN_ONE,
  CONTROL_PLANE,
  evaluate,
  LOCKED,
  NODE,
  NODE_BARE,
  podman,
  podmanBytes,
  runContainer,
  skipWithoutPodman,
  stopContainer,
  tried,
} from './podman.ts';
import { requireTeapot } from './teapot.ts';

const TOKEN = 'a-token-of-the-tests-0123456789';
const START_MS_MAX = 280_000;
const DEMO = path.join(ROOT, 'docs/images/demo.jpg');
const PLANS = JSON.parse(readFileSync(path.join(ROOT, 'models/plans.json'), 'utf8'));

interface NodeInfo {
  readonly plan: string;
  readonly models: readonly { readonly model: string; readonly inputWidth: number }[];
  readonly limits: { readonly jxlPixelsMax: number };
}

async function untilHealthy(container: string, page: string): Promise<void> {
  await until(() => tried(['exec', container, 'matting-healthcheck', page]).code === 0, {
    timeoutMs: START_MS_MAX,
    what: `${page} is 200`,
    detail: () => tried(['logs', '--tail', '20', container]).output,
  });
}

const skip = skipWithoutPodman();

describe('what the images are', { skip }, () => {
  for (const image of [CONTROL_PLANE, NODE, NODE_BARE, ALL_IN_ONE]) {
    it(`${image}: no root, an init, a health check, labels, nothing that builds`, () => {
      const [found] = JSON.parse(podman(['image', 'inspect', image]));
      const config = found.Config;
      assert.match(config.User, /^[1-9]\d*:[1-9]\d*$/);
      assert.equal(config.Entrypoint[0], '/usr/bin/tini');
      assert.deepEqual(found.HealthCheck?.Test ?? found.Healthcheck?.Test, [
        'CMD',
        'matting-healthcheck',
        'livez',
      ]);
      assert.equal(config.StopSignal ?? 'SIGTERM', 'SIGTERM');
      for (const label of [
        'title',
        'description',
        'licenses',
        'version',
        'revision',
        'base.name',
        'base.digest',
      ]) {
        assert.ok(config.Labels[`org.opencontainers.image.${label}`], label);
      }
      const tools = 'npm npx corepack gcc cc make python3 pip curl wget git';
      const script = `for tool in ${tools}; do command -v $tool; done; true`;
      assert.equal(
        podman(['run', '--rm', ...LOCKED, '--entrypoint', 'sh', image, '-c', script]),
        '',
      );
    });
  }

  it('the control plane has no runtime of models, the node no database and no bucket', () => {
    const has = (image: string) =>
      podman([
        'run',
        '--rm',
        ...LOCKED,
        '--entrypoint',
        'ls',
        image,
        '/app/node_modules',
        '/app',
      ]).split('\n');
    const controlPlane = has(CONTROL_PLANE);
    for (const name of [
      'onnxruntime-node',
      'sharp',
      'wasm-vips',
      'pacote',
      'inference-node',
      'models',
    ]) {
      assert.ok(!controlPlane.includes(name), name);
    }
    const node = has(NODE);
    for (const name of ['kysely', 'mysql2', 'fastify', 'control-plane'])
      assert.ok(!node.includes(name), name);
  });

  it('a node without weights says in a line which are missing, and ends', () => {
    const { code, output } = tried([
      ...['run', '--rm', ...LOCKED, '--env', `MATTING_NODE_TOKEN=${TOKEN}`, NODE_BARE],
    ]);
    assert.equal(code, 1, output);
    assert.match(
      output,
      /^inference node: the weights of isnet are not at \/models\/.*models fetch/m,
    );
  });

  it('a program that cannot start says why and ends with 78', () => {
    for (const image of [CONTROL_PLANE, NODE]) {
      const { code, output } = tried(['run', '--rm', ...LOCKED, image]);
      assert.equal(code, 78, output);
      assert.match(output, /MATTING_NODE_TOKEN must be set/);
    }
  });
});

describe('the whole service in two containers that share a loopback', { skip }, () => {
  let controlPlane: string;
  let node: string;

  before(
    async () => {
      controlPlane = runContainer(CONTROL_PLANE, [
        ...LOCKED,
        '--env',
        `MATTING_NODE_TOKEN=${TOKEN}`,
      ]);
      const beside = LOCKED.map(option =>
        option === 'none' ? `container:${controlPlane}` : option,
      );
      node = runContainer(NODE, [
        ...beside,
        ...['--env', `MATTING_NODE_TOKEN=${TOKEN}`],
        ...['--env', 'MATTING_REGISTRY_ADDRESS=127.0.0.1:50050'],
        ...['--env', 'MATTING_NODE_ADVERTISE_ADDRESS=127.0.0.1:50051'],
      ]);
      await untilHealthy(node, 'readyz');
      await untilHealthy(controlPlane, 'readyz');
    },
    { timeout: 2 * START_MS_MAX },
  );

  it('has no right, no way to gain one, the default seccomp filter, and a root that it cannot write', () => {
    for (const container of [controlPlane, node]) {
      const status = podman(['exec', container, 'cat', '/proc/1/status']);
      assert.match(status, /^Uid:\s4711\s/m);
      assert.match(status, /^CapEff:\s0{16}$/m);
      assert.match(status, /^NoNewPrivs:\s1$/m);
      assert.match(status, /^Seccomp:\s2$/m);
      assert.notEqual(tried(['exec', container, 'touch', '/app/x']).code, 0);
    }
  });

  it('starts the default plan from the weights inside', () => {
    const info = evaluate<NodeInfo>(
      node,
      `console.log(await (await fetch('http://127.0.0.1:50052/info')).text())`,
    );
    assert.equal(info.plan, 'standard');
    const planned = PLANS.standard.map(
      ({ model, inputSize }: { model: string; inputSize: number }) => [model, inputSize],
    );
    assert.deepEqual(
      info.models.map(({ model, inputWidth }) => [model, inputWidth]),
      planned,
    );
    assert.equal(info.limits.jxlPixelsMax, 100_000_000, 'djxl and cjxl are there');
  });

  it('cuts a photo out for a customer of the REST interface, and spends a credit', async () => {
    const matting = (...args: string[]) => podman(['exec', controlPlane, 'matting', ...args]);
    matting('accounts', 'create', 'shop');
    matting('credits', 'grant', 'shop', '10');
    const { api_key: apiKey } = JSON.parse(
      matting('keys', 'create', '--account', 'shop', '--json'),
    );
    const png = podmanBytes(
      [
        'exec',
        '--interactive',
        '--env',
        `MATTING_API_KEY=${apiKey}`,
        controlPlane,
        'matting',
        'remove',
        '-',
      ],
      readFileSync(DEMO),
    );
    await requireTeapot(png);
    assert.match(matting('credits', 'show', 'shop'), /\b9\b/);
    assert.match(matting('nodes', 'list'), /live/);
    assert.match(matting('storage', 'check'), /ok/);
  });

  it('has every page and document that it reads at run time', () => {
    const pages = {
      ':8080/v1/openapi.json': 'application/json',
      ':8080/errors': 'text/html',
      ':8080/account/sign-in': 'text/html',
      ':9464/metrics': 'text/plain',
    };
    const found = evaluate<Record<string, string>>(
      controlPlane,
      `const found = {};
       for (const page of ${JSON.stringify(Object.keys(pages))}) {
         const { status, headers } = await fetch('http://127.0.0.1' + page);
         found[page] = status + ' ' + headers.get('content-type').split(';')[0];
       }
       console.log(JSON.stringify(found));`,
    );
    const wanted = Object.entries(pages).map(([page, type]) => [page, `200 ${type}`]);
    assert.deepEqual(found, Object.fromEntries(wanted));
  });

  it('reaps what its children leave behind', async () => {
    // The shell in between ends first, so the sleep's parent is the init from then on.
    podman(['exec', node, 'sh', '-c', 'sh -c "sleep 0.2 & exit 0"; true']);
    const left = () =>
      evaluate<string[]>(
        node,
        `import { readdirSync, readFileSync } from 'node:fs';
         const stat = pid => { try { return readFileSync('/proc/' + pid + '/stat', 'utf8'); } catch { return ''; } };
         const all = readdirSync('/proc').filter(name => /^\\d+$/.test(name)).map(stat);
         console.log(JSON.stringify(all.filter(text => /\\((sleep|sh)\\)/.test(text) || /\\) Z /.test(text))));`,
      );
    let found: string[] = [];
    await until(
      () => {
        found = left();
        return found.length === 0;
      },
      {
        timeoutMs: 60_000,
        what: 'no process is a zombie',
        detail: () => found.join('\n'),
      },
    );
  });

  it('drains and ends with 0 when it is stopped', () => {
    assert.equal(stopContainer(node), 0);
    assert.equal(stopContainer(controlPlane), 0);
  });
});

describe('all in one', { skip }, () => {
  it('cuts a file out without a network', { timeout: START_MS_MAX }, async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'matting-pictures-'));
    try {
      chmodSync(folder, 0o777);
      copyFileSync(DEMO, path.join(folder, 'teapot.jpg'));
      const volume = ['--volume', `${folder}:/pictures`];
      const cut = ['cutout', 'teapot.jpg', '--out', 'teapot.png'];
      const { code, output } = tried(['run', '--rm', ...LOCKED, ...volume, ALL_IN_ONE, ...cut]);
      assert.equal(code, 0, output);
      await requireTeapot(readFileSync(path.join(folder, 'teapot.png')));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
