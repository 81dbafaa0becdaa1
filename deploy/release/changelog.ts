/** CHANGELOG.md: what the next release has to say, and its move under the release's own heading. */

const UNRELEASED = '## Unreleased';

export interface CutChangelog {
  /** The file, with an empty Unreleased above the release. */
  readonly text: string;
  /** The text about the release, without the heading. */
  readonly entries: string;
}

/**
 * @param date the release's, YYYY-MM-DD
 * @throws Error where there is nothing to say, or the version has a heading already
 */
export function cutChangelog(text: string, version: string, date: string): CutChangelog {
  const heading = `## ${version}`;
  if (text.split('\n').some(line => line === heading || line.startsWith(`${heading} `))) {
    throw new Error(`CHANGELOG.md has a heading of ${version} already`);
  }
  const start = text.indexOf(`\n${UNRELEASED}\n`);
  if (start < 0) throw new Error(`CHANGELOG.md has no "${UNRELEASED}"`);
  const from = start + UNRELEASED.length + 2;
  const next = text.indexOf('\n## ', from);
  const end = next < 0 ? text.length : next + 1;
  const entries = text.slice(from, end).trim();
  if (entries === '') throw new Error(`CHANGELOG.md has nothing under "${UNRELEASED}"`);
  const cut = `\n${UNRELEASED}\n\n${heading} (${date})\n\n${entries}\n`;
  const rest = text.slice(end);
  return { text: text.slice(0, start) + cut + (rest === '' ? '' : `\n${rest}`), entries };
}
