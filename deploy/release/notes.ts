/** RELEASE-NOTES.md: what an operator reads before the upgrade, and what the release consists of. */

export interface Notes {
  readonly version: string;
  readonly date: string;
  /** The release before. */
  readonly last: string;
  readonly entries: string;
  /** Names of the migrations that the release before has not. */
  readonly migrations: readonly string[];
  /** The artifacts' names, with their checksums. */
  readonly checksums: readonly string[];
  readonly images: readonly string[];
  /** The operator left out the artifacts of these names. */
  readonly without: readonly string[];
}

export function renderNotes(notes: Notes): string {
  const { version, date, last, entries, images, checksums, without } = notes;
  const parts = [
    `# matting ${version} (${date})`,
    entries,
    `## Upgrading from ${last}`,
    wayBack(notes),
    'docs/operate.md, "Upgrade", has the steps.',
    ...(images.length > 0 ? ['## Images', list(images)] : []),
    '## Files',
    list(checksums.length > 0 ? checksums : ['none yet']),
    ...(without.length > 0 ? [`Left out of this release: ${without.join(', ')}.`] : []),
  ];
  return `${parts.join('\n\n')}\n`;
}

/** Databases of this version are refused (control-plane/core/migrations.ts). */
const NOT_UPGRADED = '0.1.0';

function wayBack({ migrations, last }: Notes): string {
  if (last === NOT_UPGRADED) {
    return `**A database of ${last} is refused** and stays as it is: start with an empty one.`;
  }
  if (migrations.length === 0) {
    return `No migrations: control planes of ${last} run on the same schema, before, beside and after.`;
  }
  const final = migrations.filter(name => name.endsWith('-no-way-back'));
  const said = `Migrations: ${migrations.join(', ')}.`;
  if (final.length > 0) {
    return `${said} **There is no way back from ${final.join(', ')}** but a backup from before.`;
  }
  return `${said} ${last} works on this schema, too.`;
}

function list(lines: readonly string[]): string {
  return lines.map(line => `    ${line}`).join('\n');
}
