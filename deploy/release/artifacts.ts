/**
 * A release is published as these artifacts, each made from the release's own tree. Whoever lacks a
 * program for one says so by name, or there is no release.
 */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { copyFile, cp, mkdir, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isInstalled, run } from './run.ts';

export interface ReleaseTree {
  readonly version: string;
  /** A checkout of the release's commit and nothing else. */
  readonly tree: string;
  readonly commit: string;
  /** The project that cuts the release, with its packages installed. */
  readonly root: string;
  /** Artifacts are written there. */
  readonly out: string;
  /** The commit's time, seconds since 1970. */
  readonly epochS: string;
}

export interface Artifact {
  readonly name: string;
  readonly about: string;
  /** Programs besides git, npm and tar. */
  readonly programs: readonly string[];
  /** The tree must have it for this artifact, which is else neither made nor missed. */
  readonly needs?: string;
  readonly make: (release: ReleaseTree) => Promise<void>;
}

const SBOM_FORMATS = ['spdx', 'cyclonedx'] as const;
/** Workspaces; npm lists what they import. */
const PROGRAMS = ['control-plane', 'inference-node', 'bin'];
const IMAGES = ['matting-control-plane', 'matting-node', 'matting'];
/** deploy/images/build.ts puts it before names, unless it gets another. */
const OWN_PREFIX = 'localhost/';
/** Variables of `make images` that would build less, elsewhere or for another machine. */
const NOT_INHERITED = ['ONLY=', 'IMAGE_PREFIX=', 'PLATFORM='];
const REVISION_LABEL = 'org.opencontainers.image.revision';

/** In the order of making: later ones read earlier ones. */
export const ARTIFACTS: readonly Artifact[] = [
  {
    name: 'source',
    about: 'the sources, of the same bytes whenever they are packed',
    programs: [],
    make: makeSource,
  },
  {
    name: 'client',
    about: 'the package for callers',
    programs: [],
    make: makeClient,
  },
  {
    name: 'sbom',
    about: 'what the service is made of by its lock files, as SPDX and CycloneDX',
    programs: [],
    make: makeSboms,
  },
  {
    name: 'images',
    about: 'container images as OCI archives, with their digests',
    programs: ['podman'],
    needs: 'deploy/images/Containerfile',
    make: makeImages,
  },
  {
    name: 'image-sbom',
    about: 'what the images are made of, as SPDX and CycloneDX',
    programs: ['syft'],
    needs: 'deploy/images/Containerfile',
    make: makeImageSboms,
  },
  {
    name: 'chart',
    about: 'the package of the Helm chart',
    programs: ['helm'],
    needs: 'deploy/chart/Chart.yaml',
    make: makeChart,
  },
];

/** Lists what a tree's release makes. @throws Error that names every program that is not there */
export function artifactsOf(tree: string, without: readonly string[]): readonly Artifact[] {
  const unknown = without.filter(name => !ARTIFACTS.some(artifact => artifact.name === name));
  if (unknown.length > 0) {
    const known = ARTIFACTS.map(({ name }) => name).join(', ');
    throw new Error(`no artifact is called ${unknown.join(', ')}; there are: ${known}`);
  }
  const wanted = ARTIFACTS.filter(
    ({ name, needs = '' }) => !without.includes(name) && existsSync(path.join(tree, needs)),
  );
  const missing = wanted.flatMap(({ name, programs }) =>
    programs.filter(program => !isInstalled(program)).map(program => `${program} (for ${name})`),
  );
  if (missing.length === 0) return wanted;
  throw new Error(`not installed: ${missing.join(', ')}; --without=NAME,… leaves artifacts out`);
}

async function makeSource({ version, tree, out }: ReleaseTree): Promise<void> {
  const name = `matting-${version}`;
  const file = path.join(out, `${name}.tar.gz`);
  // The header gets no time of its own.
  const gzip = ['-c', 'tar.tar.gz.command=gzip -n'];
  await run(
    'git',
    [...gzip, 'archive', '--format=tar.gz', `--prefix=${name}/`, '-o', file, 'HEAD'],
    { cwd: tree },
  );
}

/** Packs the tree's client with the compiler of the project that cuts the release. */
async function makeClient({ version, tree, root, out }: ReleaseTree): Promise<void> {
  const client = path.join(tree, 'client');
  await run(process.execPath, [path.join(root, 'client/pack/main.ts'), client], { cwd: tree });
  const packed = path.join(client, 'build/client.tgz');
  await copyFile(packed, path.join(out, `matting-client-${version}.tgz`));
}

async function makeSboms({ version, tree, out }: ReleaseTree): Promise<void> {
  const service = await mkdtemp(path.join(path.dirname(out), 'service-'));
  await writeService(tree, service, version);
  const runtime = await mkdtemp(path.join(path.dirname(out), 'runtime-'));
  await writeRuntime(path.join(tree, 'bin/node'), runtime, version);
  // The install is by workspace: --omit=dev would also leave out what the root names for its tests.
  const programs = PROGRAMS.map(program => `--workspace=${program}`);
  for (const [name, cwd, only] of [
    ['matting-service', service, programs],
    ['matting-runtime', runtime, ['--omit=dev']],
  ] as const) {
    for (const format of SBOM_FORMATS) {
      const lock = ['--package-lock-only', ...only, '--sbom-type=application'];
      const text = await npm(['sbom', `--sbom-format=${format}`, ...lock], cwd);
      JSON.parse(text);
      await writeFile(path.join(out, `${name}-${version}.${format}.json`), `${text}\n`);
    }
  }
}

/**
 * The commands use the client, which has no version of its own: npm lists nothing without one. What
 * compiles the client is no part of the service.
 */
async function writeService(tree: string, to: string, version: string): Promise<void> {
  const manifests = ['ls-files', ':(glob)**/package.json', 'package-lock.json', '.npmrc'];
  const files = (await run('git', manifests, { cwd: tree })).split('\n').filter(Boolean);
  for (const file of files) await cp(path.join(tree, file), path.join(to, file));
  const read = async (name: string) => JSON.parse(await readFile(path.join(to, name), 'utf8'));
  const manifest = await read('client/package.json');
  const lock = await read('package-lock.json');
  for (const client of [manifest, lock.packages.client]) {
    Object.assign(client, { version, devDependencies: undefined });
  }
  await writeFile(path.join(to, 'client/package.json'), JSON.stringify(manifest));
  await writeFile(path.join(to, 'package-lock.json'), JSON.stringify(lock));
}

/** Node's own package has no version of ours, without which npm lists nothing. */
async function writeRuntime(from: string, to: string, version: string): Promise<void> {
  const read = async (name: string) => JSON.parse(await readFile(path.join(from, name), 'utf8'));
  const manifest = await read('package.json');
  const lock = await read('package-lock.json');
  lock.packages[''].version = version;
  await writeFile(path.join(to, 'package.json'), JSON.stringify({ ...manifest, version }));
  await writeFile(path.join(to, 'package-lock.json'), JSON.stringify({ ...lock, version }));
}

async function makeImages(release: ReleaseTree): Promise<void> {
  const { version, tree, out, epochS } = release;
  const env = { ...process.env, SOURCE_DATE_EPOCH: epochS };
  const make = ['images', `TAG=${version}`, ...NOT_INHERITED];
  await run('make', make, { cwd: tree, env, show: true });
  const images = await imagesOf(version, tree);
  // All revisions are checked before the first image is saved.
  for (const image of images) await requireRevision(image, release);
  for (const image of images) await saveImage(image, out);
}

/** Into IMAGES with the digest in the archive: saving compresses, which makes it another than here. */
export async function saveImage(image: string, out: string): Promise<void> {
  const archive = path.join(out, archiveOf(image));
  await run('podman', ['save', '--format=oci-archive', '-o', archive, image], { cwd: out });
  const index = await run('tar', ['-xOf', archive, 'index.json'], { cwd: out });
  const [{ digest }] = JSON.parse(index).manifests;
  await writeFile(path.join(out, 'IMAGES'), `${image} ${digest}\n`, { flag: 'a' });
}

/** Another tree may have left an image under a name of this release. @throws Error that names it */
async function requireRevision(image: string, { tree, commit }: ReleaseTree): Promise<void> {
  const format = `--format={{index .Labels "${REVISION_LABEL}"}}`;
  const revision = await run('podman', ['image', 'inspect', format, image], { cwd: tree });
  if (revision !== commit) {
    throw new Error(`${image} was made of ${revision}, not of ${commit}: remove it`);
  }
}

/** Names with tags, as podman has them: `localhost/matting-node:0.2.0-bare`. */
async function imagesOf(version: string, cwd: string): Promise<readonly string[]> {
  const list = ['images', '--format={{.Repository}}:{{.Tag}}'];
  const images = (await run('podman', list, { cwd })).split('\n').filter(image => {
    const [, prefix, name = '', tag = ''] = /^(.*\/)?([^/]+):([^:]+)$/.exec(image) ?? [];
    if (prefix !== OWN_PREFIX) return false;
    return IMAGES.includes(name) && (tag === version || tag.startsWith(`${version}-`));
  });
  if (images.length === 0) throw new Error(`make images made none with the tag ${version}`);
  return images;
}

function archiveOf(image: string): string {
  return `${image.slice(image.lastIndexOf('/') + 1).replace(':', '-')}.oci.tar`;
}

async function makeImageSboms({ out }: ReleaseTree): Promise<void> {
  const archives = (await readdir(out)).filter(name => name.endsWith('.oci.tar'));
  if (archives.length === 0) throw new Error('image-sbom needs the artifact images');
  for (const archive of archives) {
    const name = archive.replace(/\.oci\.tar$/, '');
    const formats = SBOM_FORMATS.flatMap(format => ['-o', `${format}-json=${name}.${format}.json`]);
    await run('syft', ['scan', `oci-archive:${archive}`, '--quiet', ...formats], { cwd: out });
  }
}

export async function makeChart({
  version,
  tree,
  out,
}: Pick<ReleaseTree, 'version' | 'tree' | 'out'>): Promise<void> {
  const versions = [`--version=${version}`, `--app-version=${version}`];
  await run('helm', ['package', 'deploy/chart', ...versions, `--destination=${out}`], {
    cwd: tree,
  });
}

function npm(args: readonly string[], cwd: string): Promise<string> {
  // The one beside this Node, where there is one, would be of another version of Node's.
  return run('npm', [...args, '--loglevel=error'], { cwd });
}

/** SHA256SUMS, as `sha256sum --check` reads it. @returns its lines */
export async function writeChecksums(out: string): Promise<readonly string[]> {
  await mkdir(out, { recursive: true });
  const lines: string[] = [];
  for (const name of (await readdir(out)).sort()) {
    const hash = createHash('sha256');
    await pipeline(createReadStream(path.join(out, name)), hash);
    lines.push(`${hash.digest('hex')}  ${name}`);
  }
  await writeFile(path.join(out, 'SHA256SUMS'), `${lines.join('\n')}\n`);
  return lines;
}

/** Image names with their digests; none where no images were made. */
export async function digestsIn(out: string): Promise<readonly string[]> {
  const file = path.join(out, 'IMAGES');
  return existsSync(file) ? (await readFile(file, 'utf8')).trim().split('\n') : [];
}
