/** The portal's variables: the account area, its mails, and what is sold there. */

import { readListenAddress } from '@matting/core/settings.ts';
import { type Environment, type EnvReader, readEnvironment } from '@matting/program/env.ts';
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { readMail } from './mails/mail-settings.ts';
import { readSales } from './orders/sales-settings.ts';
import { readBrand } from './page/brand-settings.ts';
import { PLAYGROUND_IMAGES_DEFAULT, PLAYGROUND_IMAGES_MAX } from './playground/playground-store.ts';
import { readOidc } from './sign-in/provider-settings.ts';

export type PortalSettings = ReturnType<typeof readPortalSettings>;

/** @param baseUrl that of the service, where people sign in */
export function readPortalSettings(reader: EnvReader, baseUrl: string) {
  return {
    /** Undefined if the account area is off. */
    accountArea: readAccountArea(reader, baseUrl),
    ...readMail(reader),
    brand: readBrand(reader),
    sales: readSales(reader),
  };
}

/** @throws ConfigError */
export function loadLinkConfig(env: Environment) {
  return readEnvironment(env, reader => {
    const { baseUrl } = readListenAddress(reader);
    const accountArea = readAccountArea(reader, baseUrl);
    return { baseUrl, accountArea, mail: readMail(reader).mail };
  });
}

/** Undefined: the account area is off. */
function readAccountArea(whole: EnvReader, baseUrl: string) {
  const reader = whole.section('Account area');
  const isOn = reader.boolean('MATTING_ACCOUNT_AREA', {
    about: 'Serves the [account area](accounts.md) at `/account`.',
    default: true,
  });
  const settings = {
    /** False: its pages say that nobody can sign in at the base URL. */
    canSignIn: isSignInUrl(baseUrl),
    oidc: readOidc(whole.section('Sign-in by an OpenID provider')),
    /** An account has so many pictures a day; 0: the playground is off. */
    playgroundImages: reader.integer('MATTING_PLAYGROUND_IMAGES', {
      about: `The pictures that an account may make in the [playground](accounts.md#the-playground) each
        UTC day without credits. 0 turns it off.`,
      min: 0,
      max: PLAYGROUND_IMAGES_MAX,
      default: PLAYGROUND_IMAGES_DEFAULT,
    }),
  };
  return isOn ? settings : undefined;
}

/**
 * People can sign in at a URL if nobody between them and the service reads or changes what is sent,
 * and if cookies have the whole host.
 */
function isSignInUrl(baseUrl: string): boolean {
  if (!URL.canParse(baseUrl)) return false;
  const { protocol, hostname, pathname } = new URL(baseUrl);
  const isSafe = protocol === 'https:' || isLoopback(hostname.replace(/^\[|\]$/g, ''));
  return isSafe && pathname === '/';
}

export function warnOfAccountArea({ accountArea }: Pick<PortalSettings, 'accountArea'>): string[] {
  if (accountArea?.canSignIn !== false) return [];
  return [
    'nobody can sign in at /account: MATTING_BASE_URL must be https, or http of this machine, ' +
      'without a path',
  ];
}
