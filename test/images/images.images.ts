/** The images of `make images`, run as strictly as they promise to bear, without any network. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  ALL_IN_ONE,
  CONTROL_PLANE,
  LOCKED,
  NODE,
  NODE_BARE,
  podman,
  skipWithoutPodman,
  tried,
} from './podman.ts';

const TOKEN = 'a-token-of-the-tests-0123456789';

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
