/** The list of an account's API keys, and what is shown once of a new secret. */
import type { VNode } from 'preact';
import { fill } from '../../words/words.ts';
import { linkButton } from '../components/buttons.ts';
import { dataTable, pager, panel } from '../components/lists.ts';
import { codeBlock, emptyState, notice } from '../components/marks.ts';
import { type Child, html } from '../html.ts';
import {
  capText,
  dayOr,
  type KeyRow,
  momentOr,
  type PageParts,
  scopesText,
  stateBadge,
} from './key-parts.ts';

export interface KeysProps extends PageParts {
  readonly rows: readonly KeyRow[];
  /** Whether the person may make keys. */
  readonly mayManage: boolean;
  readonly next?: string | undefined;
  readonly first?: string | undefined;
}

export function keysPage(props: KeysProps): VNode {
  const { words, rows, mayManage, next, first } = props;
  const { keys, common } = words;
  const columns = [
    { label: keys.name },
    { label: keys.key },
    { label: keys.state },
    { label: keys.lastUsed },
    { label: keys.expires },
    { label: keys.cap },
    { label: keys.scopes },
  ];
  return html`<div class="stack">
    ${dataTable({
      caption: keys.caption,
      columns,
      rows: rows.map(row => cellsOf(row, props)),
      empty: emptyState({
        title: keys.empty,
        text: keys.emptyText,
        action: mayManage ? createLink(keys.create) : null,
      }),
    })}
    ${pager(common, { next, first })}
  </div>`;
}

export function createLink(label: string): VNode {
  return html`<a class="button primary" href="/account/keys/new">${label}</a>`;
}

function cellsOf(row: KeyRow, parts: PageParts): Child[] {
  const { words } = parts;
  const { common } = words;
  return [
    html`<a href=${`/account/keys/${row.id}`}>${row.name}</a>`,
    html`<code>${row.prefix}</code>`,
    stateBadge(row, words),
    momentOr(row.lastUsedAtMs, common.never, parts),
    dayOr(row.expiresAtMs, common.never, parts),
    capText(row, parts) ?? common.none,
    scopesText(row.policy.scopes, words),
  ];
}

export interface MadeProps extends PageParts {
  readonly row: KeyRow;
  /** Shown this once. */
  readonly token: string;
  /** How to call the API with it; undefined: the key may not submit. */
  readonly curl: string | undefined;
  /** Its old secret goes on, or has ended with this one. */
  readonly rotated: boolean;
}

/** The one page that a secret is on. */
export function madeKeyPage(props: MadeProps): VNode {
  const { words, row, token, curl, rotated } = props;
  const { keys, common } = words;
  return html`<div class="stack">
    ${notice(
      'good',
      html`<p>${rotated ? keys.rotated : keys.made}</p>
      ${codeBlock(token, common, keys.madeLabel)}`,
    )}
    ${rotated ? html`<p>${oldSecret(props)}</p>` : null}
    ${
      curl === undefined
        ? null
        : panel(html`<p>${keys.tryIt}</p>`, codeBlock(curl, common, keys.tryLabel))
    }
    <p class="actions">
      ${linkButton({ href: `/account/keys/${row.id}`, label: keys.toKey })}
      ${linkButton({ href: '/account/keys', label: keys.toKeys })}
    </p>
  </div>`;
}

function oldSecret({ words, formats, row }: MadeProps): string {
  const { previousSecret } = row;
  if (previousSecret === null) return words.keys.oldEnded;
  return fill(words.keys.oldUntil, { time: formats.dateTime(previousSecret.endsAtMs) });
}
