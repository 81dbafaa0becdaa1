import type { Schema } from '@matting/database/database.ts';
import { isKeyScope, type KeyPolicy } from './key-policy.ts';

export const POLICY_COLUMNS = [
  'cap_credits',
  'cap_period',
  'submissions_per_minute',
  'scopes',
  'networks',
  'models',
] as const satisfies readonly (keyof Schema['api_keys'])[];

type PolicyColumns = Pick<Schema['api_keys'], (typeof POLICY_COLUMNS)[number]>;

export function capFromRow(row: Pick<PolicyColumns, 'cap_credits' | 'cap_period'>) {
  const { cap_credits: credits, cap_period: period } = row;
  return credits === null || period === null ? undefined : { credits, period };
}

/** Drops scopes that this version does not know. */
export function policyFromRow(row: PolicyColumns): KeyPolicy {
  const cap = capFromRow(row);
  return {
    ...(cap === undefined ? {} : { cap }),
    ...(row.submissions_per_minute === null
      ? {}
      : { submissionsPerMinute: row.submissions_per_minute }),
    ...(row.scopes === null ? {} : { scopes: row.scopes.split(',').filter(isKeyScope) }),
    ...(row.networks === null ? {} : { networks: row.networks.split(',') }),
    ...(row.models === null ? {} : { models: row.models.split(',') }),
  };
}

export function policyColumns(policy: KeyPolicy): PolicyColumns {
  const { cap, submissionsPerMinute, scopes, networks, models } = policy;
  return {
    cap_credits: cap?.credits ?? null,
    cap_period: cap?.period ?? null,
    submissions_per_minute: submissionsPerMinute ?? null,
    scopes: scopes?.join(',') ?? null,
    networks: networks?.join(',') ?? null,
    models: models?.join(',') ?? null,
  };
}
