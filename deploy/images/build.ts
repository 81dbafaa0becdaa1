/**
 * Builds the images of docs/containers.md with buildah, or podman where that is what there is, and
 * prints what each holds and how large it is.
 *   build.ts [--only control-plane,node] [--tag dev] [--prefix localhost/] [--platform linux/arm64]
 *            [--base NAME] [--node-base NAME] [--provider DIR] [--pull missing] [--no-cache]
 *            [--without "portal object-storage"] [--models-fetch best,birefnet-lite]
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';

const ROOT = path.resolve(import.meta.dirname, '../..');
const FOLDER = 'deploy/images';

interface Image {
  /** The stage of the Containerfile. */
  readonly target: string;
  readonly repository: string;
  /** Follows the tag. */
  readonly variant: string;
}

const IMAGES: readonly Image[] = [
  { target: 'control-plane', repository: 'matting-control-plane', variant: '' },
  { target: 'node-bare', repository: 'matting-node', variant: '-bare' },
  { target: 'node', repository: 'matting-node', variant: '' },
  { target: 'all-in-one', repository: 'matting', variant: '' },
  { target: 'node-cuda', repository: 'matting-node', variant: '-cuda' },
];
/** Large base that few want. */
const BY_NAME_ALONE: ReadonlySet<string> = new Set(['node-cuda']);
/** CUDA 13 and cuDNN 9, as onnxruntime-node needs them (docs/gpu.md). */
const CUDA_BASE = 'docker.io/nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04';

interface Bases {
  /** The images are built on it. */
  readonly base: string;
  /** Builds run on it: it is the same base for this machine's platform. */
  readonly tools: string;
}

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    tag: { type: 'string', default: 'dev' },
    prefix: { type: 'string', default: 'localhost/' },
    platform: { type: 'string', default: '' },
    base: { type: 'string', default: 'docker.io/library/debian:bookworm-slim' },
    'node-base': { type: 'string', default: '' },
    provider: { type: 'string', default: '' },
    pull: { type: 'string', default: 'missing' },
    without: { type: 'string', default: '' },
    'models-fetch': { type: 'string', default: '' },
    'no-cache': { type: 'boolean', default: false },
  },
});

/** Platform of this machine, in the words of images. */
const HERE = `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`;
const platform = values.platform || HERE;

function fail(words: string): never {
  console.error(`matting: ${words}`);
  process.exit(64);
}

function wanted(): readonly Image[] {
  const names = values.only.split(',').filter(name => name !== '');
  const unknown = names.filter(name => !IMAGES.some(({ target }) => target === name));
  if (unknown.length > 0) {
    fail(`no image ${unknown.join(', ')}: ${IMAGES.map(({ target }) => target).join(', ')}`);
  }
  return IMAGES.filter(({ target }) =>
    names.length > 0 ? names.includes(target) : !BY_NAME_ALONE.has(target),
  );
}

function findBuilder(): 'buildah' | 'podman' {
  for (const name of ['buildah', 'podman'] as const) {
    if (spawnSync(name, ['--version']).status === 0) return name;
  }
  return fail(`needs buildah or podman; with docker see docs/containers.md`);
}

const builder = findBuilder();

function read(program: string, args: readonly string[]): string {
  return execFileSync(program, args, { cwd: ROOT, encoding: 'utf8' }).trim();
}

/**
 * NAME@sha256:…, so that a label says what the image was made from and a second build takes it. The
 * digest is that of one platform, which is always named: without, a builder takes what it has.
 */
function byDigest(base: string, platform: string): string {
  if (base.includes('@sha256:')) return base;
  if (values.pull !== 'never') {
    const policy =
      builder === 'buildah' ? ['--policy', values.pull === 'missing' ? 'missing' : 'always'] : [];
    const args = ['pull', '--quiet', ...policy, '--platform', platform, base];
    execFileSync(builder, args, { stdio: 'inherit' });
  }
  const digest =
    builder === 'buildah'
      ? read('buildah', ['inspect', '--type', 'image', '--format', '{{.FromImageDigest}}', base])
      : read('podman', ['image', 'inspect', '--format', '{{.Digest}}', base]);
  return `${base.replace(/:[^/:]+$/, '')}@${digest}`;
}

function revision(): string {
  try {
    const commit = read('git', ['rev-parse', 'HEAD']);
    const changed = read('git', ['status', '--porcelain', '--untracked-files=no']) !== '';
    return changed ? `${commit}-changed` : commit;
  } catch {
    return 'unknown';
  }
}

function pairs(option: string, given: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(given).flatMap(([name, value]) => [option, `${name}=${value}`]);
}

/** Arguments, and labels that say what was built from what. */
function argsOf({ target }: Image, { base, tools }: Bases): readonly string[] {
  const { version } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  const nodeBase = values['node-base'] || (target === 'node-cuda' ? CUDA_BASE : '');
  const under = nodeBase && target !== 'control-plane' ? byDigest(nodeBase, platform) : base;
  const { NPM_CONFIG_REGISTRY: registry, PIP_INDEX_URL: index } = process.env;
  return [
    ...pairs('--build-arg', {
      BASE: base,
      ...(tools !== base && { BUILD_BASE: tools }),
      ...(under !== base && { NODE_BASE: under }),
      ...(registry && { NPM_REGISTRY: registry }),
      ...(index && { PIP_INDEX_URL: index }),
      ...(values.without !== '' && { WITHOUT: values.without }),
      ...(values['models-fetch'] !== '' && { MODELS_FETCH: values['models-fetch'] }),
    }),
    ...pairs('--label', {
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.revision': revision(),
      'org.opencontainers.image.base.name': under.replace(/@.*/, ''),
      'org.opencontainers.image.base.digest': under.replace(/.*@/, ''),
    }),
  ];
}

function build(image: Image, bases: Bases): string {
  const { target, repository, variant } = image;
  const name = `${values.prefix}${repository}:${values.tag}${variant}`;
  // The certificates that this machine's own npm trusts besides, where a proxy makes them needed.
  const authorities = process.env.NODE_EXTRA_CA_CERTS;
  const options = [
    builder === 'buildah' ? 'bud' : 'build',
    // The OCI format has no health checks.
    ...['--format', 'docker', '--layers', `--pull=${values.pull}`],
    ...(values['no-cache'] ? ['--no-cache'] : []),
    ...['--platform', platform],
    ...(authorities ? ['--secret', `id=ca,src=${authorities}`] : []),
    ...(values.provider === '' ? [] : ['--build-context', `provider=${values.provider}`]),
    ...['--ignorefile', `${FOLDER}/Containerfile.dockerignore`],
    ...['--file', `${FOLDER}/Containerfile`, '--target', target, '--tag', name],
    ...argsOf(image, bases),
    '.',
  ];
  const { status } = spawnSync(builder, options, { cwd: ROOT, stdio: ['ignore', 2, 2] });
  if (status !== 0) process.exit(status ?? 1);
  return name;
}

// The order matters: a name stands for the platform that was pulled last.
const tools = byDigest(values.base, HERE);
const base = byDigest(values.base, platform);
for (const image of wanted()) {
  const name = build(image, { base, tools });
  const format = '{{.Size}}  {{.ID}}';
  console.log(`${name}  ${read(builder, ['images', '--format', format, name])}`);
}
