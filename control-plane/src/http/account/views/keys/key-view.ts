/** One API key: what it may do, the form that says so, rotation and revocation. */
import type { VNode } from 'preact';
import {
  CAP_PERIODS,
  KEY_EXPIRY_PRESETS_DAYS,
  KEY_SCOPES,
} from '../../../../domain/account/key-policy.ts';
import { fill, type Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import {
  checkboxGroup,
  postForm,
  radioGroup,
  selectField,
  textArea,
  textField,
} from '../components/fields.ts';
import { definitionList, section } from '../components/lists.ts';
import { type Child, html } from '../html.ts';
import {
  capText,
  type KeyRow,
  momentOr,
  networksText,
  type PageParts,
  scopesText,
  stateBadge,
} from './key-parts.ts';

/** As typed. */
export interface KeyFormValues {
  readonly name: string;
  readonly expires: string;
  readonly cap: string;
  readonly period: string;
  readonly rate: string;
  readonly scopes: readonly string[];
  readonly networks: string;
}

export type KeyFormErrors = Readonly<Partial<Record<keyof KeyFormValues, string>>>;

export interface KeyFormProps extends PageParts {
  readonly csrf: string;
  readonly values: KeyFormValues;
  readonly errors: KeyFormErrors;
}

/** @param key undefined: a new one */
export function keyForm(props: KeyFormProps, key?: KeyRow): VNode {
  const { words, csrf, values, errors } = props;
  const { keys, common } = words;
  const action = key === undefined ? '/account/keys' : `/account/keys/${key.id}`;
  return postForm(
    { action, csrf, class: 'form panel' },
    textField({
      name: 'name',
      label: keys.name,
      hint: keys.nameHint,
      value: values.name,
      error: errors.name,
      required: true,
      maxlength: 64,
      autocomplete: 'off',
    }),
    selectField({
      name: 'expires',
      label: keys.expires,
      hint: keys.expiresHint,
      value: values.expires,
      error: errors.expires,
      options: expiryOptions(words, key !== undefined),
    }),
    ...limitFields(props),
    html`<div class="actions">${button({ label: key === undefined ? keys.create : common.save })}
        ${linkButton({ href: '/account/keys', label: common.cancel })}</div>`,
  );
}

function limitFields({ words, values, errors }: KeyFormProps): Child[] {
  const { keys, common } = words;
  const number = { inputmode: 'numeric', autocomplete: 'off', maxlength: 12 } as const;
  return [
    textField({
      ...number,
      name: 'cap',
      label: keys.cap,
      note: common.optional,
      hint: keys.capHint,
      value: values.cap,
      error: errors.cap,
    }),
    selectField({
      name: 'period',
      label: keys.period,
      hint: keys.periodHint,
      value: values.period,
      error: errors.period,
      options: CAP_PERIODS.map(value => ({ value, label: keys.periods[value] })),
    }),
    textField({
      ...number,
      name: 'rate',
      label: keys.rate,
      note: common.optional,
      hint: keys.rateHint,
      value: values.rate,
      error: errors.rate,
    }),
    checkboxGroup({
      name: 'scopes',
      label: keys.scopes,
      values: values.scopes,
      error: errors.scopes,
      options: KEY_SCOPES.map(value => ({
        value,
        label: keys.scopeNames[value],
        hint: keys.scopeHints[value],
      })),
    }),
    textArea({
      name: 'networks',
      label: keys.networks,
      note: common.optional,
      hint: keys.networksHint,
      value: values.networks,
      error: errors.networks,
      maxlength: 2048,
    }),
  ];
}

function expiryOptions({ keys }: Words, hasKey: boolean) {
  const { expiry } = keys;
  const presets = KEY_EXPIRY_PRESETS_DAYS.map(days => {
    return { value: String(days), label: expiry[String(days) as keyof typeof expiry] };
  });
  const never = { value: 'never', label: expiry.never };
  return hasKey ? [{ value: 'keep', label: expiry.keep }, ...presets, never] : [...presets, never];
}

export interface KeyPageProps extends KeyFormProps {
  readonly row: KeyRow;
  readonly mayManage: boolean;
}

export function keyPage(props: KeyPageProps): VNode {
  const { words, row, mayManage } = props;
  const { keys } = words;
  const isAlive = row.state !== 'revoked';
  return html`<div>
    ${facts(props)}
    ${
      mayManage && isAlive
        ? [
            section({ title: keys.edit, lead: keys.editLead }, keyForm(props, row)),
            rotation(props),
            revocation(props),
          ]
        : null
    }
  </div>`;
}

function facts(props: KeyPageProps): VNode {
  const { words, formats, row } = props;
  const { keys, common } = words;
  const { policy, capUse, previousSecret } = row;
  const reset = capUse?.resetsAtMs ?? null;
  const cap = capText(row, props);
  return definitionList([
    [keys.key, html`<code>${row.prefix}</code>`],
    [keys.state, stateBadge(row, words)],
    [keys.created, momentOr(row.createdAtMs, '', props)],
    [keys.lastUsed, momentOr(row.lastUsedAtMs, common.never, props)],
    [keys.expires, momentOr(row.expiresAtMs, common.never, props)],
    [keys.revokedAt, row.revokedAtMs === null ? null : momentOr(row.revokedAtMs, '', props)],
    [keys.previous, previousSecret === null ? null : previousText(previousSecret, props)],
    [
      keys.cap,
      cap !== null && reset !== null
        ? `${cap}; ${fill(keys.capReset, { time: formats.dateTime(reset) })}`
        : (cap ?? common.none),
    ],
    [
      keys.rate,
      policy.submissionsPerMinute === undefined
        ? common.none
        : formats.credits(policy.submissionsPerMinute),
    ],
    [keys.scopes, scopesText(policy.scopes, words)],
    [keys.networks, networksText(policy.networks, words)],
  ]);
}

function previousText(
  { endsAtMs, lastUsedAtMs }: NonNullable<KeyRow['previousSecret']>,
  { words, formats }: PageParts,
): string {
  const { keys } = words;
  const used =
    lastUsedAtMs === null
      ? keys.previousUnused
      : fill(keys.previousUsed, { time: formats.dateTime(lastUsedAtMs) });
  return `${fill(keys.previousUntil, { time: formats.dateTime(endsAtMs) })}; ${used}`;
}

function rotation({ words, formats, csrf, row }: KeyPageProps): VNode {
  const { keys } = words;
  const { overlaps, overlapHints } = keys;
  const { previousSecret } = row;
  const hints: Readonly<Record<string, string>> = overlapHints;
  return section(
    { title: keys.rotateTitle, lead: keys.rotateLead },
    postForm(
      { action: `/account/keys/${row.id}/rotate`, csrf, class: 'form panel' },
      previousSecret === null
        ? null
        : html`<p>${fill(keys.rotateAgain, { time: formats.dateTime(previousSecret.endsAtMs) })}</p>`,
      radioGroup({
        name: 'overlap',
        label: keys.overlap,
        value: '24h',
        options: Object.entries(overlaps).map(([value, label]) => {
          const hint = hints[value];
          return { value, label, ...(hint === undefined ? {} : { hint }) };
        }),
      }),
      html`<div class="actions">${button({
        label: keys.rotate,
        kind: 'secondary',
        confirm: fill(keys.rotateConfirm, { name: row.name }),
      })}</div>`,
    ),
  );
}

function revocation({ words, formats, csrf, row }: KeyPageProps): VNode {
  const { keys } = words;
  const used =
    row.lastUsedAtMs === null
      ? keys.revokeUnused
      : fill(keys.revokeUsed, { time: formats.dateTime(row.lastUsedAtMs) });
  return section(
    { title: keys.revokeTitle, lead: keys.revokeLead },
    postForm(
      { action: `/account/keys/${row.id}/revoke`, csrf, class: 'form panel' },
      html`<p>${used}</p>`,
      html`<div class="actions">${button({
        label: keys.revoke,
        kind: 'danger',
        confirm: fill(keys.revokeConfirm, { name: row.name }),
      })}</div>`,
    ),
  );
}
