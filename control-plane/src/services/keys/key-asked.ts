/** What people ask of a key, as they type it. Undefined: it is none of what may be asked. */
import {
  isKeyScope,
  KEY_EXPIRY_DAYS_MAX,
  KEY_RATE_MAX,
  KEY_SCOPES,
  type KeyScope,
} from '../../domain/account/key-policy.ts';
import { CREDITS_AMOUNT_MAX } from '../../domain/ledger.ts';
import { isName } from '../../store/accounts/account-store.ts';
import { KEY_NETWORKS_MAX, parseKeyNetwork } from './key-access.ts';

export { KEY_NETWORKS_MAX };

/** In Unicode's composed form, without blanks around it. */
export function parseKeyName(text: string): string | undefined {
  const name = text.trim().normalize('NFC');
  return isName(name) ? name : undefined;
}

export const parseCapCredits = (text: string) => wholeIn(text, CREDITS_AMOUNT_MAX);
export const parseKeyRate = (text: string) => wholeIn(text, KEY_RATE_MAX);
export const parseExpiryDays = (text: string) => wholeIn(text, KEY_EXPIRY_DAYS_MAX);

/** In their order, each once; 'all' where every one is named. */
export function parseKeyScopes(names: readonly string[]): readonly KeyScope[] | 'all' | undefined {
  if (names.length === 0 || !names.every(isKeyScope)) return undefined;
  const scopes = KEY_SCOPES.filter(scope => names.includes(scope));
  return scopes.length === KEY_SCOPES.length ? 'all' : scopes;
}

/** Separated by blanks, commas or line ends; each once. An empty list is 'any'. */
export function parseKeyNetworks(
  text: string,
): { readonly networks: readonly string[] | 'any' } | { readonly wrong: string } {
  const words = text.split(/[\s,]+/).filter(word => word !== '');
  const networks = new Set<string>();
  for (const word of words) {
    const network = parseKeyNetwork(word);
    if (network === undefined || networks.size >= KEY_NETWORKS_MAX) return { wrong: word };
    networks.add(network);
  }
  return { networks: networks.size === 0 ? 'any' : [...networks] };
}

/** 1 to `max`, in digits. */
function wholeIn(text: string, max: number): number | undefined {
  const value = /^[0-9]{1,12}$/.test(text) ? Number(text) : 0;
  return value >= 1 && value <= max ? value : undefined;
}
