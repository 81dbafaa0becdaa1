/** Options of `keys create` and `keys set` that say what a key may do. */
import { type Command, InvalidArgumentError } from 'commander';
import { CREDITS_AMOUNT_MAX } from '../ledger/ledger.ts';
import {
  KEY_NETWORKS_MAX,
  parseCapCredits,
  parseExpiryDays,
  parseKeyNetworks,
  parseKeyRate,
  parseKeyScopes,
} from './key-access.ts';
import {
  CAP_PERIODS,
  DAY_MS,
  isCapPeriod,
  KEY_EXPIRY_DAYS_MAX,
  KEY_RATE_MAX,
  KEY_SCOPES,
  type KeyCap,
  type KeyPolicy,
  type KeyScope,
  ROTATION_OVERLAPS,
  type RotationOverlap,
} from './key-policy.ts';

/** Without one of them a new key has none, and a key that is there keeps what it has. */
export interface KeyOptions {
  readonly expiresIn?: 'never' | { readonly inMs: number };
  readonly cap?: KeyCap | 'none';
  readonly rate?: number | 'none';
  readonly scopes?: readonly KeyScope[] | 'all';
  readonly networks?: readonly string[] | 'any';
}

export function addKeyOptions(command: Command): Command {
  return command
    .option('--expires-in <days>', 'days until it is refused, or never', parseExpiry)
    .option('--cap <credits>', 'credits it may take: 500, 500/day, 500/month, or none', parseCap)
    .option('--rate <n>', 'submissions a minute, beside the account’s rate, or none', parseRate)
    .option('--scopes <list>', 'of submit, read and account, or all', parseScopes)
    .option('--networks <list>', 'networks it may be used from (CIDR), or any', parseNetworks);
}

/** The policy with what was given. */
export function policyWith(before: KeyPolicy, options: KeyOptions): KeyPolicy {
  const { cap = before.cap, rate = before.submissionsPerMinute } = options;
  const { scopes = before.scopes, networks = before.networks } = options;
  return {
    ...(cap === undefined || cap === 'none' ? {} : { cap }),
    ...(rate === undefined || rate === 'none' ? {} : { submissionsPerMinute: rate }),
    ...(scopes === undefined || scopes === 'all' ? {} : { scopes }),
    ...(networks === undefined || networks === 'any' ? {} : { networks }),
  };
}

export function parseOverlap(text: string): RotationOverlap {
  if (Object.hasOwn(ROTATION_OVERLAPS, text)) return text as RotationOverlap;
  throw new InvalidArgumentError(`one of ${Object.keys(ROTATION_OVERLAPS).join(', ')}`);
}

function parseExpiry(text: string): NonNullable<KeyOptions['expiresIn']> {
  if (text === 'never') return text;
  const days = parseExpiryDays(text);
  if (days !== undefined) return { inMs: days * DAY_MS };
  throw new InvalidArgumentError(`a number of days, 1 to ${KEY_EXPIRY_DAYS_MAX}, or never`);
}

function parseCap(text: string): KeyCap | 'none' {
  if (text === 'none') return text;
  const [digits = '', period = 'total', ...more] = text.split('/');
  const credits = parseCapCredits(digits);
  if (credits !== undefined && isCapPeriod(period) && more.length === 0) return { credits, period };
  throw new InvalidArgumentError(
    `1 to ${CREDITS_AMOUNT_MAX} credits, with / and one of ${CAP_PERIODS.join(', ')} behind them; ` +
      'or none',
  );
}

function parseRate(text: string): number | 'none' {
  const rate = text === 'none' ? text : parseKeyRate(text);
  if (rate !== undefined) return rate;
  throw new InvalidArgumentError(`1 to ${KEY_RATE_MAX}, or none`);
}

function parseScopes(text: string): readonly KeyScope[] | 'all' {
  const scopes = text === 'all' ? text : parseKeyScopes(text.split(','));
  if (scopes !== undefined) return scopes;
  throw new InvalidArgumentError(`of ${KEY_SCOPES.join(', ')}, separated by commas, or all`);
}

function parseNetworks(text: string): readonly string[] | 'any' {
  const parsed = text === 'any' ? { networks: text } : parseKeyNetworks(text);
  if ('networks' in parsed) return parsed.networks as readonly string[] | 'any';
  throw new InvalidArgumentError(
    `"${parsed.wrong}" is no network such as 192.0.2.0/24, without bits behind its prefix, or it ` +
      `is one too many: at most ${KEY_NETWORKS_MAX}, separated by commas; or any`,
  );
}
