/** The identity provider that people may sign in by, and what its groups may do here. */
import type { EnvReader } from '#program/env.ts';
import { isLoopback } from '#program/loopback.ts';
import { isRole, type Role } from '../domain/account/roles.ts';

/** What a group of the provider is here. */
export interface GroupGrant {
  readonly group: string;
  /** Name or id of an account. */
  readonly account: string;
  readonly role: Role;
}

export interface OidcConfig {
  readonly issuer: string;
  readonly clientId: string;
  /** Undefined: a public client, by PKCE alone. */
  readonly clientSecret: string | undefined;
  /** What the button calls it. */
  readonly name: string;
  readonly scopes: readonly string[];
  /** The claim that lists a person's groups. */
  readonly groupsClaim: string;
  readonly grants: readonly GroupGrant[];
}

const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/;

/** Undefined: people sign in by passwords alone. */
export function readOidc(reader: EnvReader): OidcConfig | undefined {
  const issuer = reader.parsed(
    'MATTING_OIDC_ISSUER',
    'an https URL, such as https://id.shop.example (http only on this machine)',
    parseIssuer,
    { default: undefined },
  );
  const clientId = reader.string('MATTING_OIDC_CLIENT_ID', { lengthMax: 255, default: undefined });
  const settings = {
    clientSecret: reader.string('MATTING_OIDC_CLIENT_SECRET', { default: undefined }),
    name: reader.string('MATTING_OIDC_NAME', { lengthMax: 40, default: 'SSO' }),
    scopes: reader.list(
      'MATTING_OIDC_SCOPES',
      'scopes, openid among them',
      text => (SCOPE.test(text) ? text : undefined),
      { default: ['openid', 'email', 'profile'] },
    ),
    groupsClaim: reader.string('MATTING_OIDC_GROUPS_CLAIM', { lengthMax: 64, default: 'groups' }),
    grants: reader.list(
      'MATTING_OIDC_GROUPS',
      'group=account:role, comma-separated, such as matting-owners=shop:owner',
      parseGrant,
      { default: [] },
    ),
  };
  if (issuer === undefined) return undefined;
  if (!settings.scopes.includes('openid')) {
    reader.problem('MATTING_OIDC_SCOPES', 'scopes, openid among them');
  }
  if (clientId === undefined) {
    reader.problem('MATTING_OIDC_CLIENT_ID', 'set where MATTING_OIDC_ISSUER is');
    return undefined;
  }
  return { issuer, clientId, ...settings };
}

function parseIssuer(text: string): string | undefined {
  if (!URL.canParse(text) || text.length > 255) return undefined;
  const { protocol, hostname, search, hash } = new URL(text);
  const isSafe = protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));
  return isSafe && search === '' && hash === '' ? text : undefined;
}

/** The account may have a colon in its name, and the group whatever it likes but `=`. */
function parseGrant(text: string): GroupGrant | undefined {
  const [, group, account, role = ''] = /^([^=]{1,255})=(.{1,64}):([a-z]+)$/.exec(text) ?? [];
  if (group === undefined || account === undefined || !isRole(role)) return undefined;
  return { group, account, role };
}
