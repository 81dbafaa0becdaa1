import { readListenAddress } from '@matting/core/settings.ts';
import { isReadableSecret } from '@matting/http/outgoing/webhook-signature.ts';
import { type Environment, type EnvReader, readEnvironment } from '@matting/program/env.ts';
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { parseMail } from './mails/mail-address.ts';
import { ACCOUNT_MAILS_DEFAULT, ACCOUNT_MAILS_MAX } from './mails/messages.ts';
import type { ListOnSale } from './orders/order-rules.ts';
import type { BrandSettings } from './page/brand.ts';
import { PLAYGROUND_IMAGES_DEFAULT, PLAYGROUND_IMAGES_MAX } from './playground/playground-store.ts';
import { isRole } from './session/roles.ts';
import type { GroupGrant } from './sign-in/provider-sign-in.ts';

export type PortalSettings = ReturnType<typeof readPortalSettings>;

export function readPortalSettings(reader: EnvReader, baseUrl: string) {
  return {
    accountArea: readAccountArea(reader, baseUrl),
    ...readMail(reader),
    brand: readBrand(reader),
    sales: readSales(reader),
  };
}

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
    /** False: the pages say that nobody can sign in at the base URL. */
    canSignIn: isSignInUrl(baseUrl),
    oidc: readOidc(whole.section('Sign-in by an OpenID provider')),
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

/** True: nobody can read or change requests on their way, and cookies have the whole host. */
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

const BRAND_NAME = /^(?! )[^\p{C}\p{Zl}\p{Zp}]{1,40}(?<! )$/u;

function readBrand(whole: EnvReader): BrandSettings {
  const reader = whole.section('Account area');
  return {
    name: reader.string('MATTING_BRAND_NAME', {
      about: `Your name on pages and in mails
        ([brand](accounts.md#your-name-colour-and-logo)).`,
      pattern: BRAND_NAME,
      expected: '1 to 40 characters in one line, without blanks at the ends',
      default: undefined,
    }),
    colour: reader.string('MATTING_BRAND_COLOUR', {
      about: 'Your colour there.',
      pattern: /^#[\da-f]{6}$/i,
      expected: 'a colour such as #0a7d5c',
      default: undefined,
    }),
    /** Read only if the service has pages. */
    logoFile: reader.string('MATTING_BRAND_LOGO_FILE', {
      about: 'Your logo there: the path of an SVG or PNG file of at most 64 KiB.',
      default: undefined,
    }),
  };
}

function readMail(whole: EnvReader) {
  const reader = whole.section('Mail');
  const accountMails = reader.integer('MATTING_ACCOUNT_MAILS', {
    about: `The mails that an account may send each UTC day. Events to its own address have a second
      limit of the same size.`,
    min: 1,
    max: ACCOUNT_MAILS_MAX,
    default: ACCOUNT_MAILS_DEFAULT,
  });
  return { mail: readServer(reader), accountMails };
}

/** Undefined: the service sends no mail. The URL holds a password, so it is never logged. */
function readServer(reader: EnvReader) {
  const smtpUrl = reader.url('MATTING_SMTP_URL', {
    about: `The mail server, such as \`smtps://user:password@mail.shop.example:465\`. \`smtp://\` needs
      STARTTLS, except on this machine. Without it the service sends no mail.`,
    schemes: ['smtp', 'smtps'],
    default: undefined,
  });
  const from = reader.parsed(
    'MATTING_MAIL_FROM',
    'a mail address, such as matting@shop.example',
    parseMail,
    {
      about: 'The address that mails come from.',
      required: 'with `MATTING_SMTP_URL`',
      default: undefined,
    },
  );
  if (smtpUrl === undefined) return undefined;
  if (from === undefined) {
    reader.problem('MATTING_MAIL_FROM', 'set where MATTING_SMTP_URL is');
    return undefined;
  }
  return { smtpUrl, from };
}

const PRICE_LIST_NAMES = ['credit', 'image', 'none'] as const satisfies readonly ListOnSale[];
/** The form of callback_secret: text, or `whsec_` and Base64. */
const PAYMENT_SECRET = /^[\x21-\x7e]{24,128}$/;
const PAYMENT_SECRET_FORM =
  '24 to 128 printable ASCII characters without blanks; after whsec_, the Base64 of 24 to 64 bytes';

function parsePaymentSecret(text: string): string | undefined {
  return PAYMENT_SECRET.test(text) && isReadableSecret(text) ? text : undefined;
}
const INSTRUCTIONS_LENGTH_MAX = 2000;

function readSales(whole: EnvReader) {
  const reader = whole.section('Orders');
  const priceList = reader.oneOf('MATTING_PRICE_LIST', PRICE_LIST_NAMES, {
    about: `The price list whose packages account owners can [order](money.md#confirm-and-refund-orders). With
      \`none\` they can order nothing, and see no prices.`,
    otherwise:
      '`credit` with `MATTING_PAYMENT_SECRET` or `MATTING_PAYMENT_INSTRUCTIONS`, else `none`',
    default: undefined,
  });
  const payment = {
    paymentSecret: reader.parsed(
      'MATTING_PAYMENT_SECRET',
      PAYMENT_SECRET_FORM,
      parsePaymentSecret,
      {
        about: `The secret that signs payment notifications to \`POST /account/payments/notifications\`. Set
        the same on all control planes. Without it that path is 404.`,
        default: undefined,
      },
    ),
    /** Shown on unpaid orders: plain text, `\n` breaks a line. */
    paymentInstructions: reader.parsed(
      'MATTING_PAYMENT_INSTRUCTIONS',
      `text of at most ${INSTRUCTIONS_LENGTH_MAX} characters`,
      parseInstructions,
      {
        about: `How to pay, in your words, on every unpaid order. It is plain text; \`\\n\` breaks a
          line.`,
        default: undefined,
      },
    ),
  };
  // Without a way to pay, an order is useless.
  const canPay = (payment.paymentInstructions ?? payment.paymentSecret) !== undefined;
  return {
    ...payment,
    priceList: priceList ?? (canPay ? 'credit' : 'none'),
  };
}

/** Environment files have no line breaks, so `\n` stands for one. */
function parseInstructions(text: string): string | undefined {
  const lines = text.replaceAll('\\n', '\n');
  const isText = !/[^\P{Cc}\n\t]/u.test(lines) && lines.isWellFormed();
  return isText && [...lines].length <= INSTRUCTIONS_LENGTH_MAX ? lines : undefined;
}

const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/;

/** The identity provider, and the roles of its groups. Undefined: only passwords. */
function readOidc(reader: EnvReader) {
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
    clientSecret: reader.string('MATTING_OIDC_CLIENT_SECRET', {
      about: 'The secret of that client. Without it the client is public and uses PKCE alone.',
      default: undefined,
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

/** An account's name may have a colon, a group anything but `=`. */
function parseGrant(text: string): GroupGrant | undefined {
  const [, group, account, role = ''] = /^([^=]{1,255})=(.{1,64}):([a-z]+)$/.exec(text) ?? [];
  if (group === undefined || account === undefined || !isRole(role)) return undefined;
  return { group, account, role };
}
