import {
  CAP_PERIODS,
  isCapPeriod,
  KEY_NETWORKS_MAX,
  KEY_RATE_MAX,
  KEY_SCOPES,
  parseCapCredits,
  parseKeyModels,
  parseKeyNetworks,
  parseKeyRate,
  parseKeyScopes,
} from '@matting/accounts/keys/key-policy.ts';
import { parseKeyName } from '@matting/accounts/keys/manage-keys.ts';
import { CREDITS_AMOUNT_MAX } from '@matting/accounts/ledger/ledger.ts';
import type { CoreStores } from '@matting/core/package.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { VNode } from 'preact';
import { ACCOUNT_PATH } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import type { FormFields, Visit } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';

export type ApiKey = Awaited<ReturnType<CoreStores['apiKeys']['listNewest']>>[number];

const EXPIRY_PRESETS_DAYS = [7, 30, 90, 365] as const;

export const KEYS_PATH = `${ACCOUNT_PATH}/keys`;
export type TypedKey = Pick<ReturnType<typeof readKeyForm>, 'values' | 'errors'>;

export function keyForm(
  { words, csrf }: Visit,
  offered: readonly string[],
  { values, errors }: TypedKey,
  key?: ApiKey,
): VNode {
  const { keys, common } = words;
  const field = (name: 'name' | 'expires' | 'cap' | 'period' | 'rate' | 'networks') => ({
    name,
    label: keys[name],
    hint: keys.hints[name],
    value: values[name],
    error: errors[name],
  });
  const number = { inputmode: 'numeric', autocomplete: 'off', maxlength: 12 } as const;
  const note = common.optional;
  return ui.postForm(
    { action: key === undefined ? KEYS_PATH : `${KEYS_PATH}/${key.id}`, csrf, class: 'form panel' },
    ui.textField({ ...field('name'), required: true, maxlength: 64, autocomplete: 'off' }),
    ui.selectField({ ...field('expires'), options: expiryOptions(words, key !== undefined) }),
    ui.fold(
      { label: keys.limits, note: keys.limitsNote, isOpen: isLimited(values, errors) },
      ui.textField({ ...number, ...field('cap'), note }),
      ui.selectField({
        ...field('period'),
        options: CAP_PERIODS.map(value => ({ value, label: keys.periods[value] })),
      }),
      ui.textField({ ...number, ...field('rate'), note }),
      ui.checkboxGroup({
        name: 'scopes',
        label: keys.scopes,
        values: values.scopes,
        error: errors.scopes,
        options: KEY_SCOPES.map(value => {
          return { value, label: keys.scopeNames[value], hint: keys.scopeHints[value] };
        }),
      }),
      modelsField(words, offered, { values, errors }),
      ui.textArea({ ...field('networks'), note, maxlength: 2048 }),
    ),
    ui.actions(
      ui.button({ label: key === undefined ? keys.create : common.save }),
      ui.linkButton({ href: '/account/keys', label: common.cancel }),
    ),
  );
}

function isLimited(
  { cap, rate, scopes, models, networks }: TypedKey['values'],
  { name: _name, expires: _expires, ...errors }: TypedKey['errors'],
): boolean {
  const typed = [cap, rate, networks].some(text => text !== '');
  const chosen = models.length > 0 || scopes.length < KEY_SCOPES.length;
  return typed || chosen || Object.keys(errors).length > 0;
}

/** A chosen model stays visible if it is not offered any more. Null: there is nothing to choose. */
function modelsField({ keys }: Words, offered: readonly string[], { values, errors }: TypedKey) {
  const names = [...new Set([...offered, ...values.models])];
  if (names.length < 2 && values.models.length === 0) return null;
  return ui.checkboxGroup({
    name: 'models',
    label: keys.models,
    hint: keys.modelsHint,
    values: values.models,
    error: errors.models,
    options: names.map(value => ({ value, label: value })),
  });
}

function expiryOptions({ keys }: Words, hasKey: boolean) {
  const { expiry } = keys;
  const presets = EXPIRY_PRESETS_DAYS.map(days => {
    return { value: String(days), label: expiry[String(days) as keyof typeof expiry] };
  });
  const never = { value: 'never', label: expiry.never };
  return hasKey ? [{ value: 'keep', label: expiry.keep }, ...presets, never] : [...presets, never];
}

export const NEW_KEY: TypedKey = {
  values: {
    name: '',
    expires: '90',
    cap: '',
    period: 'month',
    rate: '',
    scopes: KEY_SCOPES,
    models: [],
    networks: '',
  },
  errors: {},
};

export function valuesOf({ name, policy }: ApiKey): TypedKey['values'] {
  const { cap, submissionsPerMinute, scopes, models, networks } = policy;
  return {
    name,
    expires: 'keep',
    cap: String(cap?.credits ?? ''),
    period: cap?.period ?? 'month',
    rate: String(submissionsPerMinute ?? ''),
    scopes: scopes ?? KEY_SCOPES,
    models: models ?? [],
    networks: networks?.join('\n') ?? '',
  };
}

/** `parsed` is undefined if a field is wrong. @param isNew a new key has no expiry to keep */
export function readKeyForm(form: FormFields, { keys }: Words, isNew: boolean) {
  const values = {
    name: form.text('name'),
    expires: form.text('expires'),
    cap: form.text('cap').trim(),
    period: form.text('period'),
    rate: form.text('rate').trim(),
    scopes: form.all('scopes'),
    models: form.all('models'),
    networks: form.text('networks'),
  };
  const name = parseKeyName(values.name);
  const expires = parseExpires(values.expires, isNew);
  const credits = values.cap === '' ? 'none' : parseCapCredits(values.cap);
  const period = isCapPeriod(values.period) ? values.period : undefined;
  const rate = values.rate === '' ? 'none' : parseKeyRate(values.rate);
  const scopes = parseKeyScopes(values.scopes);
  const models = parseKeyModels(values.models);
  const networks = parseKeyNetworks(values.networks);
  const wrong = keys.errors;
  const errors: Partial<Record<keyof typeof values, string>> = {
    ...(name === undefined && { name: wrong.name }),
    ...(expires === undefined && { expires: wrong.expires }),
    ...(credits === undefined && { cap: fill(wrong.cap, { max: CREDITS_AMOUNT_MAX }) }),
    ...(period === undefined && { period: wrong.expires }),
    ...(rate === undefined && { rate: fill(wrong.rate, { max: KEY_RATE_MAX }) }),
    ...(scopes === undefined && { scopes: wrong.scopes }),
    ...(models === undefined && { models: wrong.models }),
    ...('wrong' in networks && {
      networks: fill(wrong.networks, { text: networks.wrong, max: KEY_NETWORKS_MAX }),
    }),
  };
  const isRead = name !== undefined && expires !== undefined && period !== undefined;
  if (!isRead || Object.keys(errors).length > 0 || 'wrong' in networks) {
    return { values, parsed: undefined, errors };
  }
  const policy: ApiKey['policy'] = {
    ...(typeof credits === 'number' && { cap: { credits, period } }),
    ...(typeof rate === 'number' && { submissionsPerMinute: rate }),
    ...(typeof scopes === 'object' && { scopes }),
    ...(typeof models === 'object' && { models }),
    ...(typeof networks.networks === 'object' && { networks: networks.networks }),
  };
  return { values, parsed: { name, expires, policy }, errors };
}

function parseExpires(text: string, isNew: boolean) {
  if (text === 'never') return 'never' as const;
  if (text === 'keep' && !isNew) return 'keep' as const;
  const days = EXPIRY_PRESETS_DAYS.find(preset => String(preset) === text);
  return days === undefined ? undefined : { inMs: days * DAY_MS };
}
