/** The form of an API key: what was typed, what of it is wrong, and what is asked for. */
import {
  type CapPeriod,
  DAY_MS,
  isCapPeriod,
  KEY_EXPIRY_PRESETS_DAYS,
  KEY_RATE_MAX,
  KEY_SCOPES,
  type KeyPolicy,
} from '../../../domain/account/key-policy.ts';
import { CREDITS_AMOUNT_MAX } from '../../../domain/ledger.ts';
import { KEY_NETWORKS_MAX } from '../../../services/keys/key-access.ts';
import {
  parseCapCredits,
  parseKeyName,
  parseKeyNetworks,
  parseKeyRate,
  parseKeyScopes,
} from '../../../services/keys/key-asked.ts';
import type { FormFields } from '../session/form-body.ts';
import type { KeyRow } from '../views/keys/key-parts.ts';
import type { KeyFormErrors, KeyFormValues } from '../views/keys/key-view.ts';
import { fill, type Words } from '../words/words.ts';

export interface AskedKey {
  readonly name: string;
  readonly expires: 'keep' | 'never' | { readonly inMs: number };
  readonly policy: KeyPolicy;
}

export const NEW_KEY_VALUES: KeyFormValues = {
  name: '',
  expires: '90',
  cap: '',
  period: 'month',
  rate: '',
  scopes: KEY_SCOPES,
  networks: '',
};

/** What the form of a key that is there begins with. */
export function valuesOf({ name, policy }: KeyRow): KeyFormValues {
  const { cap, submissionsPerMinute, scopes, networks } = policy;
  return {
    name,
    expires: 'keep',
    cap: cap === undefined ? '' : String(cap.credits),
    period: cap?.period ?? 'month',
    rate: submissionsPerMinute === undefined ? '' : String(submissionsPerMinute),
    scopes: scopes ?? KEY_SCOPES,
    networks: networks?.join('\n') ?? '',
  };
}

export interface ReadKeyForm {
  readonly values: KeyFormValues;
  /** Undefined where something is wrong. */
  readonly asked: AskedKey | undefined;
  readonly errors: KeyFormErrors;
}

/** @param isNew a new key has no expiry that could stay */
export function readKeyForm(form: FormFields, { keys }: Words, isNew: boolean): ReadKeyForm {
  const values: KeyFormValues = {
    name: form.text('name'),
    expires: form.text('expires'),
    cap: form.text('cap').trim(),
    period: form.text('period'),
    rate: form.text('rate').trim(),
    scopes: form.all('scopes'),
    networks: form.text('networks'),
  };
  const name = parseKeyName(values.name);
  const expires = parseExpires(values.expires, isNew);
  const cap = values.cap === '' ? 'none' : parseCapCredits(values.cap);
  const period = isCapPeriod(values.period) ? values.period : undefined;
  const rate = values.rate === '' ? 'none' : parseKeyRate(values.rate);
  const scopes = parseKeyScopes(values.scopes);
  const networks = parseKeyNetworks(values.networks);
  const { errors } = keys;
  const wrong: KeyFormErrors = {
    ...(name === undefined && { name: errors.name }),
    ...(expires === undefined && { expires: errors.expires }),
    ...(cap === undefined && { cap: fill(errors.cap, { max: CREDITS_AMOUNT_MAX }) }),
    ...(period === undefined && { period: errors.expires }),
    ...(rate === undefined && { rate: fill(errors.rate, { max: KEY_RATE_MAX }) }),
    ...(scopes === undefined && { scopes: errors.scopes }),
    ...('wrong' in networks && {
      networks: fill(errors.networks, { text: networks.wrong, max: KEY_NETWORKS_MAX }),
    }),
  };
  const isRead = name !== undefined && expires !== undefined && scopes !== undefined;
  if (!isRead || Object.keys(wrong).length > 0 || 'wrong' in networks) {
    return { values, asked: undefined, errors: wrong };
  }
  const policy = policyOf({ cap, period, rate, scopes, networks: networks.networks });
  return { values, asked: { name, expires, policy }, errors: {} };
}

function parseExpires(text: string, isNew: boolean): AskedKey['expires'] | undefined {
  if (text === 'never' || (text === 'keep' && !isNew)) return text;
  const days = KEY_EXPIRY_PRESETS_DAYS.find(preset => String(preset) === text);
  return days === undefined ? undefined : { inMs: days * DAY_MS };
}

function policyOf(given: {
  readonly cap: number | 'none' | undefined;
  readonly period: CapPeriod | undefined;
  readonly rate: number | 'none' | undefined;
  readonly scopes: KeyPolicy['scopes'] | 'all';
  readonly networks: KeyPolicy['networks'] | 'any';
}): KeyPolicy {
  const { cap, period = 'total', rate, scopes, networks } = given;
  return {
    ...(typeof cap === 'number' && { cap: { credits: cap, period } }),
    ...(typeof rate === 'number' && { submissionsPerMinute: rate }),
    ...(typeof scopes === 'object' && { scopes }),
    ...(typeof networks === 'object' && { networks }),
  };
}
