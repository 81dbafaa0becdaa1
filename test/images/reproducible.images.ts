/** The application's layers of an image, built twice without a cache: the same bytes both times. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { ROOT } from '../support/running-service.ts';
import { podman, skipWithoutPodman, tried } from './podman.ts';

const PREFIX = 'localhost/twice-';
const TAGS = ['first', 'second'] as const;
/** Node, packages, source: what deploy/images/Containerfile copies last, on Debian's packages. */
const APPLICATION_LAYERS = 3;

const nameOf = (tag: string) => `${PREFIX}matting-control-plane:${tag}`;

function build(tag: string): void {
  const options = ['--only', 'control-plane', '--tag', tag, '--prefix', PREFIX, '--no-cache'];
  const program = path.join(ROOT, 'deploy/images/build.ts');
  execFileSync(process.execPath, [program, ...options], { stdio: 'ignore' });
}

function layersOf(tag: string): readonly string[] {
  const format = '{{json .RootFS.Layers}}';
  return JSON.parse(podman(['image', 'inspect', '--format', format, nameOf(tag)]));
}

describe('an image is made again', { skip: skipWithoutPodman() }, () => {
  after(() => tried(['rmi', '--force', ...TAGS.map(nameOf)]));

  it('with the same layers of the application', { timeout: 1_800_000 }, () => {
    for (const tag of TAGS) build(tag);
    const [first = [], second = []] = TAGS.map(layersOf);
    assert.equal(first.length, 2 + APPLICATION_LAYERS, 'the base, Debian packages, and these');
    assert.deepEqual(first.slice(-APPLICATION_LAYERS), second.slice(-APPLICATION_LAYERS));
  });
});
