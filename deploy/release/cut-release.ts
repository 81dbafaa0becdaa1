/**
 * Cuts a release in a scratch tree: the changelog and every version, a commit, the artifacts of that
 * commit, and a commit after it that records it. The branch and the tag move when all of that is
 * there, so that a release that fails leaves nothing behind.
 */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { artifactsOf, digestsIn, writeChecksums } from './artifacts.ts';
import { cutChangelog } from './changelog.ts';
import { type Notes, renderNotes } from './notes.ts';
import { run } from './run.ts';
import { isLater, parseVersion, readVersions, setVersions } from './versions.ts';

const CHANGELOG = 'CHANGELOG.md';
const RELEASES = 'deploy/releases.json';
/** The core's series of migrations, and those of packages. */
const MIGRATIONS = ':(glob)control-plane/*/migrations/*.ts';
/** Numbered, as the list of each series has them. */
const MIGRATION = /^\d{4}-.*(?=\.ts$)/;
/** Files that are named where the tree is not clean. */
const DIRTY_SHOWN_MAX = 5;

export interface ReleaseOptions {
  /** The project's checkout, on the branch that the release is of. */
  readonly root: string;
  readonly version: string;
  /** YYYY-MM-DD. */
  readonly date: string;
  /** Gets the artifacts; must not be there. */
  readonly out: string;
  /** Artifacts that are not made. */
  readonly without: readonly string[];
  /** Everything up to the commit is done, in the scratch tree alone. */
  readonly dryRun: boolean;
  readonly say: (line: string) => void;
}

export async function cutRelease(options: ReleaseOptions): Promise<void> {
  const { root, version, out, without, dryRun, say } = options;
  const last = await requireReady(options);
  const artifacts = artifactsOf(root, without);
  const scratch = await mkdtemp(path.join(tmpdir(), 'matting-release-'));
  const tree = path.join(scratch, 'tree');
  const made = path.join(scratch, 'out');
  const git = (...args: string[]) => run('git', args, { cwd: tree });
  await run('git', ['worktree', 'add', '--quiet', '--detach', tree, 'HEAD'], { cwd: root });
  try {
    const head = await git('rev-parse', 'HEAD');
    const { entries, files } = await writeRelease(tree, options);
    await git('add', ...files);
    await git('commit', '--quiet', '-m', `Release ${version}`);
    const commit = await git('rev-parse', 'HEAD');
    const epochS = await git('log', '-1', '--format=%ct');
    const notes: Notes = {
      version,
      date: options.date,
      last: last.version,
      entries,
      migrations: await migrationsSince(last.commit, tree),
      checksums: [],
      images: [],
      without,
    };
    if (dryRun) {
      say(await git('show', '--stat', '--format=%s', 'HEAD'));
      for (const { name, about } of artifacts) say(`would make ${name}: ${about}`);
      say(`\n${renderNotes(notes)}`);
      return;
    }
    await mkdir(made);
    for (const { name, about, make } of artifacts) {
      say(`${name}: ${about}`);
      await make({ version, tree, commit, root, out: made, epochS });
    }
    const images = await digestsIn(made);
    const checksums = await writeChecksums(made);
    const text = renderNotes({ ...notes, images, checksums });
    await writeFile(path.join(made, 'RELEASE-NOTES.md'), text);
    await record(tree, version, commit);
    await publish({ options, git, head, commit, made });
    say(`\n${version} is ${commit}, tagged v${version}; its files are in ${out}`);
  } finally {
    await run('git', ['worktree', 'remove', '--force', tree], { cwd: root });
    await rm(scratch, { recursive: true, force: true });
  }
}

interface Recorded {
  readonly version: string;
  readonly commit: string;
}

/** Nothing has been changed yet where this rejects. @returns the release before */
async function requireReady({ root, version, out }: ReleaseOptions): Promise<Recorded> {
  parseVersion(version);
  const git = (...args: string[]) => run('git', args, { cwd: root });
  const dirty = (await git('status', '--porcelain')).split('\n').filter(line => line !== '');
  if (dirty.length > 0) {
    const shown = dirty.slice(0, DIRTY_SHOWN_MAX).join('\n');
    throw new Error(`the tree has ${dirty.length} changes that are not committed:\n${shown}`);
  }
  await git('symbolic-ref', '--quiet', 'HEAD').catch(() => {
    throw new Error('HEAD is on no branch: check out the one that the release is of');
  });
  if ((await git('tag', '--list', `v${version}`)) !== '') {
    throw new Error(`there is a tag v${version} already`);
  }
  if (existsSync(out)) throw new Error(`${out} is there already`);
  const [[file, [current = ''] = []] = []] = readVersions(root);
  const commits = JSON.parse(await readFile(path.join(root, RELEASES), 'utf8')) as object;
  const [lastVersion, commit] = Object.entries(commits).at(-1) ?? [];
  if (lastVersion === undefined) throw new Error(`${RELEASES} has no release`);
  for (const before of [current, lastVersion]) {
    if (!isLater(version, before)) throw new Error(`${version} is not after ${before} (${file})`);
  }
  return { version: lastVersion, commit: String(commit) };
}

async function writeRelease(
  tree: string,
  { version, date }: ReleaseOptions,
): Promise<{ readonly entries: string; readonly files: readonly string[] }> {
  const file = path.join(tree, CHANGELOG);
  const { text, entries } = cutChangelog(await readFile(file, 'utf8'), version, date);
  await writeFile(file, text);
  return { entries, files: [CHANGELOG, ...setVersions(tree, version)] };
}

/** Lists the migrations since the last release, as far as this clone has its history. */
async function migrationsSince(commit: string, tree: string): Promise<readonly string[]> {
  const range = [`${commit}..HEAD`, '--', MIGRATIONS];
  const added = await run('git', ['diff', '--name-only', '--diff-filter=A', ...range], {
    cwd: tree,
  });
  return added
    .split('\n')
    .filter(name => MIGRATION.test(path.basename(name)))
    .map(name => {
      const [, series] = name.split('/');
      return `${series === 'core' ? '' : `${series}/`}${path.basename(name, '.ts')}`;
    })
    .sort();
}

/** Records the commit in a further commit: a commit cannot name itself. */
async function record(tree: string, version: string, commit: string): Promise<void> {
  const file = path.join(tree, RELEASES);
  const commits = JSON.parse(await readFile(file, 'utf8')) as object;
  await writeFile(file, `${JSON.stringify({ ...commits, [version]: commit }, null, 2)}\n`);
  const git = (...args: string[]) => run('git', args, { cwd: tree });
  await git('commit', '--quiet', '-m', `Record the release ${version}`, '--', RELEASES);
}

interface Publication {
  readonly options: ReleaseOptions;
  /** Runs in the scratch tree. */
  readonly git: (...args: string[]) => Promise<string>;
  /** The branch was at this commit. */
  readonly head: string;
  readonly commit: string;
  readonly made: string;
}

/** Publishes the branch, the tag and the files: all or none of them. */
async function publish({ options, git, head, commit, made }: Publication): Promise<void> {
  const { root, version, out } = options;
  const recorded = await git('rev-parse', 'HEAD');
  await git('tag', '--annotate', '-m', `matting ${version}`, `v${version}`, commit);
  try {
    await move(made, out);
    // Refused where the branch has moved, or a file has changed, since this began.
    const now = await run('git', ['rev-parse', 'HEAD'], { cwd: root });
    if (now !== head) throw new Error(`the branch has moved from ${head} to ${now}`);
    await run('git', ['merge', '--quiet', '--ff-only', recorded], { cwd: root });
  } catch (error) {
    await git('tag', '--delete', `v${version}`);
    await rm(out, { recursive: true, force: true });
    throw error;
  }
}

/** Moves a file, also to another file system. */
async function move(from: string, to: string): Promise<void> {
  await mkdir(path.dirname(to), { recursive: true });
  try {
    await rename(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
    await run('cp', ['-R', from, to], { cwd: path.dirname(to) });
  }
}
