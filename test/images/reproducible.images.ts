/** Builds the application's layers twice without a cache. */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import ava from 'ava';
import { ROOT } from '../running-service.ts';
import { isNotTested } from '../support/skip.ts';
import { podman, skipWithoutPodman, tried } from './podman.ts';

const test = ava.serial;

const PREFIX = 'localhost/twice-';
const TAGS = ['first', 'second'] as const;
/** Node, packages, source, client: the last ones in deploy/images/Containerfile. */
const APPLICATION_LAYERS = 4;
const BUILDS_MS_MAX = 1_800_000;

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

test.after.always(() => tried(['rmi', '--force', ...TAGS.map(nameOf)]));

test.skipIf(isNotTested(skipWithoutPodman()))('builds have the same application layers', t => {
  t.timeout(BUILDS_MS_MAX);
  for (const tag of TAGS) build(tag);
  const [first = [], second = []] = TAGS.map(layersOf);
  t.is(first.length, 2 + APPLICATION_LAYERS, 'the base, Debian packages, and these');
  t.deepEqual(first.slice(-APPLICATION_LAYERS), second.slice(-APPLICATION_LAYERS));
});
