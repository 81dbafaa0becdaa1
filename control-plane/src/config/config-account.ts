/** The settings of the account area, and of the proxies in front of the public port. */
import type { EnvReader } from '#program/env.ts';
import { isLoopback } from '#program/loopback.ts';
import { PLAYGROUND_IMAGES_DEFAULT, PLAYGROUND_IMAGES_MAX } from '../domain/playground.ts';
import { parseNetwork } from '../sources/guard/allowed-address.ts';
import { type OidcConfig, readOidc } from './config-oidc.ts';

/** Absent as a whole where the area is off. */
export interface AccountAreaConfig {
  /** False: its pages say that the base URL is none to sign in at. */
  readonly canSignIn: boolean;
  /** Undefined: people sign in by passwords alone. */
  readonly oidc?: OidcConfig | undefined;
  /** Pictures of an account a day; 0: the playground is off. */
  readonly playgroundImages: number;
}

export interface AccountSettings {
  readonly accountArea: AccountAreaConfig | undefined;
  readonly trustedProxies: readonly string[];
}

export function readAccountArea(reader: EnvReader, baseUrl: string): AccountSettings {
  const isOn = reader.boolean('MATTING_ACCOUNT_AREA', { default: true });
  const trustedProxies = reader.list(
    'MATTING_TRUSTED_PROXIES',
    'networks such as 10.1.0.0/16 or fd00:1::/32',
    parseNetwork,
    { default: [] },
  );
  const settings: AccountAreaConfig = {
    canSignIn: isSignInUrl(baseUrl),
    oidc: readOidc(reader),
    playgroundImages: reader.integer('MATTING_PLAYGROUND_IMAGES', {
      min: 0,
      max: PLAYGROUND_IMAGES_MAX,
      default: PLAYGROUND_IMAGES_DEFAULT,
    }),
  };
  return { accountArea: isOn ? settings : undefined, trustedProxies };
}

/**
 * Where people can sign in: nobody between them and the service reads or changes what is sent, and
 * cookies have the whole host.
 */
function isSignInUrl(baseUrl: string): boolean {
  if (!URL.canParse(baseUrl)) return false;
  const { protocol, hostname, pathname } = new URL(baseUrl);
  const isSafe = protocol === 'https:' || isLoopback(hostname.replace(/^\[|\]$/g, ''));
  return isSafe && pathname === '/';
}

export function warnOfAccountArea(config: {
  readonly accountArea: AccountAreaConfig | undefined;
}): string | undefined {
  if (config.accountArea?.canSignIn !== false) return undefined;
  return (
    'nobody can sign in at /account: MATTING_BASE_URL must be https, or http of this machine, ' +
    'without a path'
  );
}
