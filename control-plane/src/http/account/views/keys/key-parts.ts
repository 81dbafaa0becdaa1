/** What the pages of API keys say of one. */
import type { KeyPolicy, KeyScope } from '../../../../domain/account/key-policy.ts';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { badge, time } from '../components/marks.ts';
import { type Child, html } from '../html.ts';

/** A key, without its secrets. */
export interface KeyRow {
  readonly id: string;
  readonly prefix: string;
  readonly name: string;
  readonly createdAtMs: number;
  readonly revokedAtMs: number | null;
  readonly expiresAtMs: number | null;
  readonly lastUsedAtMs: number | null;
  readonly previousSecret: {
    readonly endsAtMs: number;
    readonly lastUsedAtMs: number | null;
  } | null;
  readonly policy: KeyPolicy;
  readonly capUse: { readonly used: number; readonly resetsAtMs: number | null } | null;
  readonly state: 'active' | 'expired' | 'revoked';
}

export interface PageParts {
  readonly words: Words;
  readonly formats: Formats;
}

export function stateBadge(key: KeyRow, { keys }: Words): Child {
  if (key.state === 'revoked') return badge(keys.states.revoked, 'bad');
  if (key.state === 'expired') return badge(keys.states.expired, 'warning');
  if (key.previousSecret !== null) return badge(keys.states.rotating, 'accent');
  return badge(keys.states.active, 'good');
}

/** A day; the words for never where there is none. */
export function dayOr(ms: number | null, none: string, { formats }: PageParts): Child {
  return ms === null ? none : time(ms, formats.date(ms));
}

export function momentOr(ms: number | null, none: string, { formats }: PageParts): Child {
  return ms === null ? none : time(ms, formats.dateTime(ms));
}

/** `12 of 1,000, every day`; null: the key has no cap. */
export function capText({ policy, capUse }: KeyRow, { words, formats }: PageParts): string | null {
  const { cap } = policy;
  if (cap === undefined) return null;
  const { keys } = words;
  const use = fill(keys.capUse, {
    used: formats.credits(capUse?.used ?? 0),
    credits: formats.credits(cap.credits),
  });
  return cap.period === 'total' ? use : fill(keys.capUsePeriods[cap.period], { use });
}

export function scopesText(scopes: readonly KeyScope[] | undefined, { keys }: Words): Child {
  return scopes === undefined
    ? keys.allScopes
    : scopes.map(scope => html`<div>${keys.scopeNames[scope]}</div>`);
}

export function networksText(networks: readonly string[] | undefined, { keys }: Words): Child {
  return networks === undefined
    ? keys.anyNetwork
    : networks.map(network => html`<div><code>${network}</code></div>`);
}
