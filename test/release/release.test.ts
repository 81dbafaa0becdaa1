/** The release command in a scratch clone: what it refuses, what it makes, what it leaves behind. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ARTIFACTS, artifactsOf } from '../../deploy/release/artifacts.ts';
import { cutRelease, type ReleaseOptions } from '../../deploy/release/cut-release.ts';
import { renderNotes } from '../../deploy/release/notes.ts';
import { readVersions } from '../../deploy/release/versions.ts';
import { findProgram } from '../support/foreign-program.ts';
import { ROOT } from '../support/running-service.ts';

/** Minutes of building; without Helm the chart, too. */
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

async function refused(reason: RegExp, options: Partial<ReleaseOptions> = {}): Promise<void> {
  const earlier = traces();
  await assert.rejects(cut(options), reason);
  assert.deepEqual(traces(), earlier, 'it left something behind');
}

before(() => {
  if (HELM !== undefined) process.env.PATH += path.delimiter + path.dirname(HELM);
  scratch = mkdtempSync(path.join(tmpdir(), 'matting-release-test-'));
  clone = path.join(scratch, 'clone');
  out = path.join(scratch, 'out');
  execFileSync('git', ['clone', '--quiet', '--depth=1', `file://${ROOT}`, clone], {
    stdio: 'pipe',
  });
  for (const [name, value] of [
    ['user.name', 'A Releaser'],
    ['user.email', 'releaser@example.com'],
  ]) {
    git('config', name ?? '', value ?? '');
  }
  git('checkout', '--quiet', '-B', 'main');
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(clone, 'node_modules'));
  // A clone of this depth has no commit of the last release.
  commit('deploy/releases.json', JSON.stringify({ '0.2.0': git('rev-parse', 'HEAD') }));
  commit('control-plane/src/store/database/migrations/9998-a-thing.ts', '');
  commit(
    'CHANGELOG.md',
    '# Changelog\n\n## Unreleased\n\n- A thing.\n\n## 0.1.0 (2026-11-21)\n\n- All.\n',
  );
});
after(() => rmSync(scratch, { recursive: true, force: true }));

it('finds one version in this project, at every place', () => {
  const versions = [...readVersions(ROOT).values()].flat();
  assert.deepEqual([...new Set(versions)], [versions[0]]);
  const places = [...readVersions(ROOT).keys()];
  for (const file of ['package.json', 'package-lock.json', 'client/package.json']) {
    assert.ok(places.includes(file), file);
  }
});

describe('a release is refused', () => {
  it('of what is no version, or not a later one', async () => {
    for (const version of ['1', '1.0', 'v99.1.0', '99.1.0-rc.1', '99.01.0', '']) {
      await refused(/is no version such as/, { version });
    }
    for (const version of ['0.1.0', '0.0.9']) await refused(/is not after 0\.1\.0/, { version });
  });

  it('of a tree with changes, files that git does not know among them', async () => {
    const file = path.join(clone, 'forgotten.txt');
    writeFileSync(file, '');
    await refused(/1 changes that are not committed:\n\?\? forgotten\.txt/);
    rmSync(file);
    const readme = readFileSync(path.join(clone, 'README.md'));
    appendFileSync(path.join(clone, 'README.md'), 'more');
    await refused(/README\.md/);
    writeFileSync(path.join(clone, 'README.md'), readme);
  });

  it('of a commit that no branch holds', async () => {
    git('checkout', '--quiet', '--detach');
    await refused(/on no branch/);
    git('checkout', '--quiet', 'main');
  });

  it('where its tag or its directory is there', async () => {
    git('tag', `v${VERSION}`);
    await refused(/there is a tag v99\.1\.0 already/);
    git('tag', '--delete', `v${VERSION}`);
    await refused(/is there already/, { out: clone });
  });

  it('with an artifact that nobody knows, or whose program is missing', async () => {
    await refused(/no artifact is called imges; there are: source, client/, { without: ['imges'] });
    const { PATH } = process.env;
    process.env.PATH = '';
    try {
      const tree = mkdtempSync(path.join(scratch, 'tree-'));
      execFileSync('/bin/mkdir', ['-p', path.join(tree, 'deploy/chart')]);
      writeFileSync(path.join(tree, 'deploy/chart/Chart.yaml'), '');
      assert.throws(() => artifactsOf(tree, []), /not installed: helm \(for chart\)/);
      assert.ok(!artifactsOf(tree, ['chart']).some(({ name }) => name === 'chart'));
    } finally {
      process.env.PATH = PATH;
    }
  });

  it('with nothing to say, or with a heading of it', async () => {
    const text = readFileSync(path.join(clone, 'CHANGELOG.md'), 'utf8');
    commit('CHANGELOG.md', text.replace('- A thing.\n\n', ''));
    await refused(/nothing under "## Unreleased"/);
    commit('CHANGELOG.md', text.replace('## 0.1.0', `## ${VERSION}`));
    await refused(/has a heading of 99\.1\.0 already/);
    commit('CHANGELOG.md', text);
  });

  it('and undone, where the branch moves meanwhile', async () => {
    const head = git('rev-parse', 'HEAD');
    const say = (line: string) => {
      if (line.startsWith('source')) commit('meanwhile.txt', '');
    };
    const without = [...WITHOUT, 'client', 'sbom', 'chart'];
    await assert.rejects(cut({ say, without }), /the branch has moved/);
    assert.equal(git('rev-parse', 'HEAD~1'), head);
    const { tags, worktrees, out: made } = traces();
    assert.deepEqual([tags, worktrees, made], ['', 1, false]);
  });

  it('and undone, where an artifact cannot be made', async () => {
    const source = readFileSync(path.join(clone, 'client/src/index.ts'), 'utf8');
    commit('client/src/index.ts', `${source}\nexport const broken: number = 'text';\n`);
    await refused(/client.*tsconfig|index\.ts\(\d+,\d+\): error TS2322/);
    commit('client/src/index.ts', source);
  });
});

describe('a release', () => {
  it('is shown by a dry run, which changes nothing', async () => {
    const earlier = traces();
    said.length = 0;
    await cut({ dryRun: true });
    assert.deepEqual(traces(), earlier);
    const text = said.join('\n');
    for (const part of ['Release 99.1.0', 'CHANGELOG.md', 'would make source', '- A thing.']) {
      assert.ok(text.includes(part), `${part} is not in ${text}`);
    }
  });

  it('is a commit, a tag, a record and files that check', async () => {
    const head = git('rev-parse', 'HEAD');
    await cut();
    assert.equal(git('rev-parse', 'HEAD~2'), head);
    const release = git('rev-parse', 'HEAD~1');
    assert.equal(git('rev-parse', `v${VERSION}^{commit}`), release);
    assert.equal(git('cat-file', '-t', `v${VERSION}`), 'tag');
    const record = JSON.parse(readFileSync(path.join(clone, 'deploy/releases.json'), 'utf8'));
    assert.deepEqual(Object.keys(record), ['0.2.0', VERSION]);
    assert.equal(record[VERSION], release);
    assert.equal(git('status', '--porcelain'), '');
    assert.equal(traces().worktrees, 1);
    assert.deepEqual([...new Set([...readVersions(clone).values()].flat())], [VERSION]);
    assert.equal(
      readFileSync(path.join(clone, 'CHANGELOG.md'), 'utf8'),
      `# Changelog\n\n## Unreleased\n\n## ${VERSION} (2026-12-31)\n\n- A thing.\n\n## 0.1.0 (2026-11-21)\n\n- All.\n`,
    );
    assert.deepEqual(readdirSync(out).sort(), [...FILES, 'RELEASE-NOTES.md', 'SHA256SUMS'].sort());
    execFileSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: out });
  });

  it('says how to come from the last one, what is in it and what is not', () => {
    const notes = readFileSync(path.join(out, 'RELEASE-NOTES.md'), 'utf8');
    const sums = readFileSync(path.join(out, 'SHA256SUMS'), 'utf8').trim().split('\n');
    assert.deepEqual(sums.map(line => line.split('  ')[1]).sort(), FILES.toSorted());
    const parts = [
      '# matting 99.1.0 (2026-12-31)',
      '- A thing.',
      '## Upgrading from 0.2.0',
      '9998-a-thing',
      'They only add: 0.2.0 works on the schema, too',
      `Left out of this release: ${WITHOUT.join(', ')}.`,
      ...sums,
    ];
    for (const part of parts) assert.ok(notes.includes(part), `${part} is not in ${notes}`);
  });

  it('packs the same sources to the same bytes, and a client of its version', () => {
    const first = readFileSync(path.join(out, `matting-${VERSION}.tar.gz`));
    const again = execFileSync(
      'git',
      [
        '-c',
        'tar.tar.gz.command=gzip -n',
        'archive',
        '--format=tar.gz',
        `--prefix=matting-${VERSION}/`,
        `v${VERSION}`,
      ],
      { cwd: clone, maxBuffer: 1 << 28 },
    );
    assert.ok(first.equals(again));
    const file = path.join(out, `matting-client-${VERSION}.tgz`);
    const names = execFileSync('tar', ['-tzf', file], { encoding: 'utf8' }).split('\n');
    for (const name of ['package/dist/index.js', 'package/dist/index.d.ts', 'package/LICENSE']) {
      assert.ok(names.includes(name), name);
    }
    const manifest = execFileSync('tar', ['-xzOf', file, 'package/package.json']);
    assert.equal(JSON.parse(String(manifest)).version, VERSION);
  });

  it('packs the chart of its version', { skip: HELM === undefined && 'no helm here' }, () => {
    const file = path.join(out, `matting-${VERSION}.tgz`);
    const text = execFileSync('tar', ['-xzOf', file, 'matting/Chart.yaml'], { encoding: 'utf8' });
    assert.match(text, new RegExp(`^version: ${VERSION}$`, 'm'));
    assert.match(text, new RegExp(`^appVersion: ${VERSION}$`, 'm'));
  });

  it('lists what it is made of in both formats, and nothing of what only makes it', () => {
    const read = (name: string) => JSON.parse(readFileSync(path.join(out, name), 'utf8'));
    const spdx = read(`matting-service-${VERSION}.spdx.json`);
    const cyclone = read(`matting-service-${VERSION}.cyclonedx.json`);
    const lists: readonly { name: string }[][] = [spdx.packages, cyclone.components];
    for (const packages of lists) {
      const names = packages.map(({ name }) => name);
      assert.ok(names.includes('fastify') && names.includes('onnxruntime-node'));
      assert.ok(!names.includes('typescript'));
    }
    assert.match(spdx.spdxVersion, /^SPDX-2/);
    assert.equal(cyclone.bomFormat, 'CycloneDX');
    assert.equal(cyclone.metadata.component.version, VERSION);
  });

  it('is cut once, and the next one only when there is something new', async () => {
    await refused(/there is a tag|is there already|is not after/);
    await refused(/nothing under/, { version: '99.1.1', out: path.join(scratch, 'next') });
  });
});

it('says of each release before what it is on the newer schema', () => {
  const said = (last: string, ...migrations: string[]) =>
    renderNotes({
      ...{ version: VERSION, date: '2026-12-31', last, entries: '- A thing.', migrations },
      ...{ checksums: [], images: [], without: [] },
    });
  assert.match(said('0.2.0', '0020-a'), /They only add: 0\.2\.0 works on the schema, too/);
  assert.match(said('0.1.0', '0016-a'), /A database of 0\.1\.0 is refused/);
  assert.match(said('0.2.0'), /control planes of 0\.2\.0 run on the same schema/);
  const final = said('0.2.0', '0020-a', '0021-b-no-way-back');
  assert.match(final, /no way back from 0021-b-no-way-back\*\* but a backup/);
});

describe('images of a release', () => {
  const COMMIT = 'a'.repeat(40);
  const NAMES = ['localhost/matting:99.1.0', 'localhost/matting-node:99.1.0-bare'];
  const OTHERS = ['registry.example/matting:99.1.0', 'matting:99.1.0', 'localhost/matting:99.1.00'];
  let tools: string;

  /** A stand-in for podman that knows the images, and writes each line it was started with. */
  function install(revision: string): void {
    const podman = `#!/bin/sh
echo "podman $*" >> ${tools}/said
case "$*" in
  images*) printf '%s\\n' ${[...OTHERS, ...NAMES].join(' ')} ;;
  *Labels*bare) echo ${revision} ;;
  *Labels*) echo ${COMMIT} ;;
  *inspect*) echo sha256:0 ;;
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

  it('are those that were built now, whatever else is called so', async () => {
    const made = await makeImages(COMMIT);
    const lines = NAMES.map(name => `${name} sha256:0\n`).join('');
    assert.equal(readFileSync(path.join(made, 'IMAGES'), 'utf8'), lines);
    const [first] = readFileSync(path.join(tools, 'said'), 'utf8').split('\n');
    assert.equal(first, 'make images TAG=99.1.0 ONLY= IMAGE_PREFIX= PLATFORM=');
  });

  it('are refused where one is of another commit', async () => {
    const other = 'b'.repeat(40);
    const reason = new RegExp(`matting-node:99.1.0-bare was made of ${other}, not of ${COMMIT}`);
    await assert.rejects(makeImages(other), reason);
    assert.doesNotMatch(readFileSync(path.join(tools, 'said'), 'utf8'), /podman save/);
  });
});
