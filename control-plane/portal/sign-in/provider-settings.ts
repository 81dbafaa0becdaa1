/** The settings of the identity provider that people may sign in by, and what its groups may do here. */

import type { EnvReader } from '@matting/program/env.ts';
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { isRole } from '../session/roles.ts';
import type { GroupGrant } from './provider-sign-in.ts';

const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/;

/** Undefined: people sign in by passwords alone. */
export function readOidc(reader: EnvReader) {
  const issuer = reader.parsed(
    'MATTING_OIDC_ISSUER',
    'an https URL, such as https://id.shop.example (http only on this machine)',
    parseIssuer,
    {
      about: `The provider by which people may sign in. Register this redirect there:
        \`<MATTING_BASE_URL>/account/sign-in/provider/back\`.`,
      default: undefined,
    },
  );
  const clientId = reader.string('MATTING_OIDC_CLIENT_ID', {
    about: 'The client that you registered.',
    required: 'with `MATTING_OIDC_ISSUER`',
    lengthMax: 255,
    default: undefined,
  });
  const settings = {
    /** Undefined: the client is public, with PKCE alone. */
    clientSecret: reader.string('MATTING_OIDC_CLIENT_SECRET', {
      about: 'The secret of that client. Without it the client is public and uses PKCE alone.',
      default: undefined,
    }),
    /** The button calls the provider so. */
    name: reader.string('MATTING_OIDC_NAME', {
      about: 'What the sign-in button calls the provider.',
      ...{ lengthMax: 40, default: 'SSO' },
    }),
    scopes: reader.list(
      'MATTING_OIDC_SCOPES',
      'scopes, openid among them',
      text => (SCOPE.test(text) ? text : undefined),
      {
        about: 'The scopes that the service asks for.',
        default: ['openid', 'email', 'profile'],
      },
    ),
    groupsClaim: reader.string('MATTING_OIDC_GROUPS_CLAIM', {
      about: 'The claim that lists the groups of a person.',
      ...{ lengthMax: 64, default: 'groups' },
    }),
    grants: reader.list(
      'MATTING_OIDC_GROUPS',
      'group=account:role, such as matting-owners=shop:owner',
      parseGrant,
      {
        about: `The roles that groups of the provider have here. An account is a name or an id. Nothing
          else makes a person of the provider a member of an account.`,
        default: [] as readonly GroupGrant[],
      },
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

/** The account may have a colon in its name, and the group anything but `=`. */
function parseGrant(text: string): GroupGrant | undefined {
  const [, group, account, role = ''] = /^([^=]{1,255})=(.{1,64}):([a-z]+)$/.exec(text) ?? [];
  if (group === undefined || account === undefined || !isRole(role)) return undefined;
  return { group, account, role };
}
