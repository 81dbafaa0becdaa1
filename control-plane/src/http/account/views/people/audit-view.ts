/** The log of what was changed in an account. */
import type { VNode } from 'preact';
import type { Formats } from '../../words/formats.ts';
import type { Words } from '../../words/words.ts';
import { dataTable, pager } from '../components/lists.ts';
import { emptyState, time } from '../components/marks.ts';
import { type Child, html } from '../html.ts';

type Values = Readonly<Record<string, string | number | boolean | null>>;

export interface AuditRow {
  readonly atMs: number;
  readonly actorKind: keyof Words['audit']['actors'];
  readonly mail: string | null;
  readonly address: string | null;
  readonly action: string;
  readonly subject: string;
  readonly before: Values | null;
  readonly after: Values | null;
}

export function auditPage(props: {
  readonly words: Words;
  readonly formats: Formats;
  readonly rows: readonly AuditRow[];
  readonly next?: string | undefined;
  readonly first?: string | undefined;
}): VNode {
  const { words, formats, rows, next, first } = props;
  const { audit, common } = words;
  const columns = [
    { label: audit.time },
    { label: audit.who },
    { label: audit.from },
    { label: audit.what },
    { label: audit.subject },
    { label: audit.change },
  ];
  return html`<div class="stack">
    ${dataTable({
      caption: audit.title,
      columns,
      rows: rows.map(row => cellsOf(row, audit, formats)),
      empty: emptyState({ title: audit.empty }),
    })}
    ${pager(common, { next, first })}
  </div>`;
}

function cellsOf(row: AuditRow, audit: Words['audit'], formats: Formats): Child[] {
  return [
    time(row.atMs, formats.exactTime(row.atMs)),
    row.mail ?? audit.actors[row.actorKind],
    row.address === null ? null : html`<code>${row.address}</code>`,
    actionIn(audit, row.action),
    row.subject,
    changesOf(row),
  ];
}

/** One that has no words yet is shown by its code. */
function actionIn({ actions }: Words['audit'], action: string): Child {
  const known = Object.hasOwn(actions, action)
    ? actions[action as keyof typeof actions]
    : undefined;
  return known ?? html`<code>${action}</code>`;
}

/** `role: member → owner`, a line a value that is another. */
function changesOf({ before, after }: AuditRow): Child {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  const changed = [...names].filter(name => before?.[name] !== after?.[name]);
  return changed.map(name => {
    const [was, is] = [before?.[name], after?.[name]].map(value => `${value ?? '–'}`);
    const text = before === null ? `${name}: ${is}` : `${name}: ${was} → ${is}`;
    return html`<div><code>${text}</code></div>`;
  });
}
