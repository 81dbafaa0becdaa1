/** In a scratch clone. */
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava, { type ExecutionContext } from 'ava';
import { ARTIFACTS, artifactsOf } from '../../deploy/release/artifacts.ts';
import { cutRelease, type ReleaseOptions } from '../../deploy/release/cut-release.ts';
import { renderNotes } from '../../deploy/release/notes.ts';
import { readVersions } from '../../deploy/release/versions.ts';
import { ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { linkPackages } from '../support/linked-packages.ts';
import { isNotTested } from '../support/skip.ts';
import { rejectsWith } from '../support/throws.ts';

const test = ava.serial;

/** They take minutes; the chart needs Helm. */
const HELM = findProgram('helm');
const WITHOUT = ['images', 'image-sbom', ...(HELM === undefined ? ['chart'] : [])];
const VERSION = '99.1.0';
const FILES = [
  `matting-${VERSION}.tar.gz`,
  `matting-client-${VERSION}.tgz`,
  ...(HELM === undefined ? [] : [`matting-${VERSION}.tgz`]),
  ...['matting-service', 'matting-runtime'].flatMap(name =>
    ['spdx', 'cyclonedx'].map(format => `${name}-${VERSION}.${format}.json`),
  ),
];

let scratch: string;
let clone: string;
let out: string;
const said: string[] = [];

const git = (...args: string[]) =>
  execFileSync('git', args, { cwd: clone, encoding: 'utf8', stdio: 'pipe' }).trim();

function commit(file: string, text: string): void {
  writeFileSync(path.join(clone, file), text);
  git('add', '--force', file);
  git('commit', '--quiet', '-m', `Change ${file}`);
}

function cut(options: Partial<ReleaseOptions> = {}): Promise<void> {
  return cutRelease({
    root: clone,
    version: VERSION,
    date: '2026-12-31',
    out,
    without: WITHOUT,
    dryRun: false,
    say: line => said.push(line),
    ...options,
  });
}

/** Everything that a release may change. */
function traces() {
  return {
    head: git('rev-parse', 'HEAD'),
    tags: git('tag', '--list'),
    changes: git('status', '--porcelain'),
    worktrees: git('worktree', 'list').split('\n').length,
    out: existsSync(out),
  };
}

async function refused(
  t: ExecutionContext,
  reason: RegExp,
  options: Partial<ReleaseOptions> = {},
): Promise<void> {
  const earlier = traces();
  await rejectsWith(t, cut(options), reason);
  t.deepEqual(traces(), earlier, 'it left something behind');
}

test.before(() => {
  if (HELM !== undefined) process.env.PATH += path.delimiter + path.dirname(HELM);
  scratch = mkdtempSync(path.join(tmpdir(), 'matting-release-test-'));
  clone = path.join(scratch, 'clone');
  out = path.join(scratch, 'out');
  execFileSync('git', ['clone', '--quiet', '--depth=1', `file://${ROOT}`, clone], {
    stdio: 'pipe',
  });
  git('config', 'user.name', 'A Releaser');
  git('config', 'user.email', 'releaser@example.com');
  git('checkout', '--quiet', '-B', 'main');
  linkPackages(clone);
  // A shallow clone lacks the last release's commit.
  commit('deploy/releases.json', JSON.stringify({ '0.2.0': git('rev-parse', 'HEAD') }));
  commit('control-plane/core/migrations/9998-a-thing.ts', '');
  commit('control-plane/batches/migrations/9998-a-thing.ts', '');
  commit(
    'CHANGELOG.md',
    '# Changelog\n\n## Unreleased\n\n- A thing.\n\n## 0.1.0 (2026-11-21)\n\n- All.\n',
  );
});
test.after.always(() => rmSync(scratch, { recursive: true, force: true }));

test('finds one version in this project, at every place', t => {
  const versions = [...readVersions(ROOT).values()].flat();
  t.deepEqual([...new Set(versions)], [versions[0]]);
  const places = [...readVersions(ROOT).keys()];
  for (const file of ['package.json', 'package-lock.json']) t.true(places.includes(file), file);
});

test('a release is refused › of what is no version, or not a later one', async t => {
  for (const version of ['1', '1.0', 'v99.1.0', '99.1.0-rc.1', '99.01.0', '']) {
    await refused(t, /is no version such as/, { version });
  }
  const [[current = ''] = []] = [...readVersions(ROOT).values()];
  for (const version of [current, '0.0.9']) {
    await refused(t, new RegExp(`${version} is not after ${current}`), { version });
  }
});

test('a release is refused › of a tree with changes, files that git does not know among them', async t => {
  const file = path.join(clone, 'forgotten.txt');
  writeFileSync(file, '');
  await refused(t, /1 changes that are not committed:\n\?\? forgotten\.txt/);
  rmSync(file);
  const readme = readFileSync(path.join(clone, 'README.md'));
  appendFileSync(path.join(clone, 'README.md'), 'more');
  await refused(t, /README\.md/);
  writeFileSync(path.join(clone, 'README.md'), readme);
});

test('a release is refused › of a commit that no branch holds', async t => {
  git('checkout', '--quiet', '--detach');
  await refused(t, /on no branch/);
  git('checkout', '--quiet', 'main');
});

test('a release is refused › where its tag or its directory is there', async t => {
  git('tag', `v${VERSION}`);
  await refused(t, /there is a tag v99\.1\.0 already/);
  git('tag', '--delete', `v${VERSION}`);
  await refused(t, /is there already/, { out: clone });
});

test('a release is refused › with an artifact that nobody knows, or whose program is missing', async t => {
  await refused(t, /no artifact is called imges; there are: source, client/, {
    without: ['imges'],
  });
  const { PATH } = process.env;
  process.env.PATH = '';
  try {
    const tree = mkdtempSync(path.join(scratch, 'tree-'));
    execFileSync('/bin/mkdir', ['-p', path.join(tree, 'deploy/chart')]);
    writeFileSync(path.join(tree, 'deploy/chart/Chart.yaml'), '');
    t.throws(() => artifactsOf(tree, []), { message: /not installed: helm \(for chart\)/ });
    t.false(artifactsOf(tree, ['chart']).some(({ name }) => name === 'chart'));
  } finally {
    process.env.PATH = PATH;
  }
});

test('a release is refused › with nothing to say, or with a heading of it', async t => {
  const text = readFileSync(path.join(clone, 'CHANGELOG.md'), 'utf8');
  commit('CHANGELOG.md', text.replace('- A thing.\n\n', ''));
  await refused(t, /nothing under "## Unreleased"/);
  commit('CHANGELOG.md', text.replace('## 0.1.0', `## ${VERSION}`));
  await refused(t, /has a heading of 99\.1\.0 already/);
  commit('CHANGELOG.md', text);
});

test('a release is refused › and undone, where the branch moves meanwhile', async t => {
  const head = git('rev-parse', 'HEAD');
  const say = (line: string) => {
    if (line.startsWith('source')) commit('meanwhile.txt', '');
  };
  const without = [...WITHOUT, 'client', 'sbom', 'chart'];
  await t.throwsAsync(cut({ say, without }), { message: /the branch has moved/ });
  t.is(git('rev-parse', 'HEAD~1'), head);
  const { tags, worktrees, out: made } = traces();
  t.deepEqual([tags, worktrees, made], ['', 1, false]);
});

test('a release is refused › and undone, where an artifact cannot be made', async t => {
  const source = readFileSync(path.join(clone, 'client/src/index.ts'), 'utf8');
  commit('client/src/index.ts', `${source}\nexport const broken: number = 'text';\n`);
  await refused(t, /client.*tsconfig|index\.ts\(\d+,\d+\): error TS2322/);
  commit('client/src/index.ts', source);
});

test('a release › is shown by a dry run, which changes nothing', async t => {
  const earlier = traces();
  said.length = 0;
  await cut({ dryRun: true });
  t.deepEqual(traces(), earlier);
  t.regex(said.join('\n'), /would make source(.|\n)*- A thing\./);
});

test('a release › is a commit, a tag, a record and files that check', async t => {
  const head = git('rev-parse', 'HEAD');
  await cut();
  t.is(git('rev-parse', 'HEAD~2'), head);
  const release = git('rev-parse', 'HEAD~1');
  t.is(git('rev-parse', `v${VERSION}^{commit}`), release);
  t.is(git('cat-file', '-t', `v${VERSION}`), 'tag');
  const record = JSON.parse(readFileSync(path.join(clone, 'deploy/releases.json'), 'utf8'));
  t.deepEqual(Object.keys(record), ['0.2.0', VERSION]);
  t.is(record[VERSION], release);
  t.is(git('status', '--porcelain'), '');
  t.is(traces().worktrees, 1);
  t.deepEqual([...new Set([...readVersions(clone).values()].flat())], [VERSION]);
  t.is(
    readFileSync(path.join(clone, 'CHANGELOG.md'), 'utf8'),
    `# Changelog\n\n## Unreleased\n\n## ${VERSION} (2026-12-31)\n\n- A thing.\n\n## 0.1.0 (2026-11-21)\n\n- All.\n`,
  );
  t.deepEqual(readdirSync(out).sort(), [...FILES, 'RELEASE-NOTES.md', 'SHA256SUMS'].sort());
  execFileSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: out });
});

test('a release › says how to come from the last one, what is in it and what is not', t => {
  const notes = readFileSync(path.join(out, 'RELEASE-NOTES.md'), 'utf8');
  const sums = readFileSync(path.join(out, 'SHA256SUMS'), 'utf8').trim().split('\n');
  t.deepEqual(sums.map(line => line.split('  ')[1]).sort(), FILES.toSorted());
  const parts = [
    '- A thing.',
    '## Upgrading from 0.2.0',
    '9998-a-thing',
    WITHOUT.join(', '),
    ...sums,
  ];
  for (const part of parts) t.true(notes.includes(part), `${part} is not in ${notes}`);
});

test('a release › packs the same sources to the same bytes, and a client of its version', t => {
  const first = readFileSync(path.join(out, `matting-${VERSION}.tar.gz`));
  const archive = ['archive', '--format=tar.gz', `--prefix=matting-${VERSION}/`, `v${VERSION}`];
  const again = execFileSync('git', ['-c', 'tar.tar.gz.command=gzip -n', ...archive], {
    cwd: clone,
    maxBuffer: 1 << 28,
  });
  t.true(first.equals(again));
  const file = path.join(out, `matting-client-${VERSION}.tgz`);
  const names = execFileSync('tar', ['-tzf', file], { encoding: 'utf8' }).split('\n');
  for (const name of ['package/dist/index.js', 'package/dist/index.d.ts', 'package/LICENSE']) {
    t.true(names.includes(name), name);
  }
  const manifest = execFileSync('tar', ['-xzOf', file, 'package/package.json']);
  t.is(JSON.parse(String(manifest)).version, VERSION);
});

test.skipIf(isNotTested(HELM === undefined && 'no helm here'))(
  'a release › packs the chart of its version',
  t => {
    const file = path.join(out, `matting-${VERSION}.tgz`);
    const text = execFileSync('tar', ['-xzOf', file, 'matting/Chart.yaml'], { encoding: 'utf8' });
    t.regex(text, new RegExp(`^version: ${VERSION}$`, 'm'));
    t.regex(text, new RegExp(`^appVersion: ${VERSION}$`, 'm'));
  },
);

test('a release › lists what it is made of in both formats, and nothing of what only makes it', t => {
  const read = (name: string) => JSON.parse(readFileSync(path.join(out, name), 'utf8'));
  const spdx = read(`matting-service-${VERSION}.spdx.json`);
  const cyclone = read(`matting-service-${VERSION}.cyclonedx.json`);
  const lists: readonly { name: string }[][] = [spdx.packages, cyclone.components];
  for (const packages of lists) {
    const names = packages.map(({ name }) => name);
    t.true(names.includes('fastify') && names.includes('onnxruntime-node'));
    t.false(names.includes('typescript'));
  }
  t.regex(spdx.spdxVersion, /^SPDX-2/);
  t.is(cyclone.bomFormat, 'CycloneDX');
  t.is(cyclone.metadata.component.version, VERSION);
});

test('a release › is cut once, and the next one only when there is something new', async t => {
  await refused(t, /there is a tag|is there already|is not after/);
  await refused(t, /nothing under/, { version: '99.1.1', out: path.join(scratch, 'next') });
});

test('says of each release before what it is on the newer schema', t => {
  const said = (last: string, ...migrations: string[]) =>
    renderNotes({
      ...{ version: VERSION, date: '2026-12-31', last, entries: '- A thing.', migrations },
      ...{ checksums: [], images: [], without: [] },
    });
  t.regex(said('0.2.0', '0020-a'), /0020-a\. 0\.2\.0 works on this schema, too/);
  t.regex(said('0.1.0', '0016-a'), /A database of 0\.1\.0 is refused/);
  t.regex(said('0.2.0'), /control planes of 0\.2\.0 run on the same schema/);
  const final = said('0.2.0', '0020-a', '0021-b-no-way-back');
  t.regex(final, /no way back from 0021-b-no-way-back\*\* but a backup/);
});

const COMMIT = 'a'.repeat(40);
const NAMES = ['localhost/matting:99.1.0', 'localhost/matting-node:99.1.0-bare'];
const OTHERS = ['registry.example/matting:99.1.0', 'matting:99.1.0', 'localhost/matting:99.1.00'];
let tools: string;

function install(revision: string): void {
  const podman = `#!/bin/sh
echo "podman $*" >> ${tools}/said
case "$*" in
  images*) printf '%s\\n' ${[...OTHERS, ...NAMES].join(' ')} ;;
  *Labels*bare) echo ${revision} ;;
  *Labels*) echo ${COMMIT} ;;
  save*)
    echo '{"manifests":[{"digest":"sha256:0"}]}' > ${tools}/index.json
    tar -cf "$4" -C ${tools} index.json ;;
esac
`;
  writeFileSync(path.join(tools, 'podman'), podman, { mode: 0o755 });
  const make = `#!/bin/sh\necho "make $*" >> ${tools}/said\n`;
  writeFileSync(path.join(tools, 'make'), make, { mode: 0o755 });
}

async function makeImages(revision: string): Promise<string> {
  tools = mkdtempSync(path.join(scratch, 'tools-'));
  install(revision);
  const made = path.join(tools, 'out');
  mkdirSync(made);
  const { PATH } = process.env;
  process.env.PATH = `${tools}${path.delimiter}${PATH}`;
  try {
    const images = ARTIFACTS.find(({ name }) => name === 'images');
    const tree = { version: VERSION, tree: tools, root: tools, out: made, epochS: '0' };
    await images?.make({ ...tree, commit: COMMIT });
  } finally {
    process.env.PATH = PATH;
  }
  return made;
}

test('images of a release › are those that were built now, whatever else is called so', async t => {
  const made = await makeImages(COMMIT);
  const lines = NAMES.map(name => `${name} sha256:0\n`).join('');
  t.is(readFileSync(path.join(made, 'IMAGES'), 'utf8'), lines);
  const [first] = readFileSync(path.join(tools, 'said'), 'utf8').split('\n');
  t.is(first, 'make images TAG=99.1.0 ONLY= IMAGE_PREFIX= PLATFORM=');
});

test('images of a release › are refused where one is of another commit', async t => {
  const other = 'b'.repeat(40);
  const reason = new RegExp(`matting-node:99.1.0-bare was made of ${other}, not of ${COMMIT}`);
  await rejectsWith(t, makeImages(other), reason);
  t.notRegex(readFileSync(path.join(tools, 'said'), 'utf8'), /podman save/);
});
