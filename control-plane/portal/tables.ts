/** The portal's tables as Kysely sees them; migrations/ makes them, in this order. */
import type { Generated } from 'kysely';
import type { PaymentOutcome, StoredOrderState } from './orders/order-rules.ts';
import type { LinkPurpose, MemberSource } from './people/link-store.ts';
import type { Role } from './session/roles.ts';
import type { SignInMethod } from './session/session-store.ts';

declare module '@matting/database/database.ts' {
  interface Schema {
    /**
     * A row counts what jobs used that ended on a UTC day, as the ledger's settlements of that day.
     */
    usage_days: {
      account_id: string;
      /** Counts days since 1970-01-01 UTC, by the ledger's entry; by the end of a correction. */
      day: number;
      api_key_id: string;
      outcome: 'succeeded' | 'failed' | 'corrected';
      /** The format is that of the output. */
      format: string;
      images: number;
      credits: number;
    };
    /** An account whose playground was used has one row: its allowance of a day. */
    playgrounds: {
      account_id: string;
      /** Jobs of the playground have this key; nobody has its secret. */
      api_key_id: string;
      /** The first instant, UTC, of the day that `used` counts. */
      day_at: number;
      used: number;
    };
    /**
     * An order is a purchase of one package at its day's price (order-rules.ts). It is never
     * removed.
     */
    orders: {
      id: string;
      account_id: string;
      price_list: 'credit' | 'image';
      credits: number;
      /** The price is in the currency's smallest unit, as every sum of money here. */
      price: number;
      currency: string;
      /** 'pending' past expires_at means expired. */
      state: StoredOrderState;
      /** So much of the price was paid back. */
      refunded: number;
      /**
       * Counts credits that refunds took back, and credits, spent or held by jobs, that they could
       * not.
       */
      revoked: number;
      unrevoked: number;
      /** The last refund that left something; null: `unrevoked` is 0. */
      unrevoked_at: number | null;
      created_at: number;
      expires_at: number;
      paid_at: number | null;
      /** Names who reported the payment. */
      paid_by: string | null;
      /** The order is paid with this payment. */
      payment: string | null;
      cancelled_at: number | null;
      /** Payers write it into a transfer; null: the order is older than references. */
      reference: string | null;
    };
    /** Each reported payment is stored once, whatever the state of its order. */
    order_payments: {
      order_id: string;
      payment: string;
      amount: number;
      currency: string;
      outcome: PaymentOutcome;
      told_by: string;
      received_at: number;
    };
    /** Each refund is stored once. */
    order_refunds: {
      order_id: string;
      refund: string;
      amount: number;
      /** The amount stands for so many credits; refunds could take back so many of them. */
      credits: number;
      revoked: number;
      told_by: string;
      created_at: number;
      /** null: the refund came before the payment, and waits for it. */
      applied_at: number | null;
    };
    users: {
      id: string;
      /**
       * The mail is as typed; for people of an identity provider it is their name (providerName).
       */
      mail: string;
      /**
       * The mail's mailKeyOf; null: only an identity provider knows the person, and no mail finds
       * them.
       */
      mail_key: string | null;
      /** Null: no password was set. */
      password_hash: string | null;
      /** Null: the browser's languages decide. */
      language: string | null;
      created_at: number;
      disabled_at: number | null;
      /**
       * The mail is theirs for sure since then: they came by a link that its mail alone, or the
       * operator, brought. Null: somebody typed it.
       */
      proven_at: number | null;
      /** Counts transactions that locked this row by a change, on engines that certify. */
      turns: Generated<number>;
    };
    /** A row says who a person is elsewhere (OpenID Connect). */
    identities: {
      issuer: string;
      subject: string;
      user_id: string;
      created_at: number;
    };
    members: {
      account_id: string;
      user_id: string;
      role: Role;
      /** 'oidc': a group of the identity provider grants it, judged again at each sign-in. */
      source: MemberSource;
      created_at: number;
    };
    one_time_links: {
      id: string;
      /** The hash is SHA-256 of the token, hexadecimal. */
      token_hash: string;
      purpose: LinkPurpose;
      account_id: string;
      mail: string;
      role: Role;
      /** Names who made it: a mail, or `operator`. */
      created_by: string;
      created_at: number;
      expires_at: number;
      used_at: number | null;
      /** 1: whoever opens it has that mail; 0: another person has seen it too. */
      proves_mail: number;
      /** The person who made it; null: the operator. */
      made_by: string | null;
    };
    sessions: {
      /** Lists and forms call it so; it is no secret. */
      id: string;
      /** The hash is SHA-256 of what the cookie holds, hexadecimal. */
      id_hash: string;
      user_id: string;
      /** The person acts for this account. */
      account_id: string;
      method: SignInMethod;
      created_at: number;
      /** The time is up to a minute late. */
      seen_at: number;
      /** The session's absolute bound. */
      expires_at: number;
      address: string;
      /** The browser's words about itself. */
      agent: string;
    };
    /** A row counts failed sign-ins of an address or a mail: portal/sign-in/sign-in.ts. */
    sign_in_throttles: {
      key_hash: string;
      window_start: number;
      failures: number;
    };
    /** Each threshold that an owner set has one row. */
    balance_alerts: {
      account_id: string;
      /** Owners get a notice at this many available credits, and at fewer. */
      threshold: number;
      created_at: number;
      /** null: the threshold is armed. */
      told_at: number | null;
      /** `available` + `reserved` at the notice. */
      told_credits: number | null;
      told_event: string | null;
      /** When the account's quota last kept a notice or a part of it back; null: nothing waits. */
      withheld_at: number | null;
      /** Names what waits (alerts/notices.ts). */
      withheld_rest: string | null;
    };
    /** An account has at most one row: the address of its own events. */
    account_webhooks: {
      account_id: string;
      url: string;
      /** The secret is encrypted and bound to the account. */
      secret: Uint8Array;
      secret_key_id: string;
      created_at: number;
      /** Names the last test that was sent; null: none yet. */
      test_event: string | null;
    };
    /** Each notice before an API key expires has one row. */
    key_expiry_notices: {
      id: string;
      api_key_id: string;
      expires_at: number;
      /** The columns mean the same as in balance_alerts. */
      withheld_at: number | null;
      withheld_rest: string | null;
    };
    /**
     * Rows hold sessions of the operator's pages that were signed out, until they would have
     * expired.
     */
    ended_operator_sessions: {
      /** The hash is SHA-256 of what the cookie holds, hexadecimal. */
      token_hash: string;
      expires_at: number;
    };
    /** Counts what an account sent, or an address got, on a day (UTC): mails/messages.ts. */
    message_counts: {
      /** The hash is SHA-256 of the counted name, hexadecimal, so that no table lists addresses. */
      key_hash: string;
      /** The day's first instant. */
      day_at: number;
      used: number;
      withheld: number;
      /** An account's events have it: when its last test was sent, also to an earlier address. */
      tested_at: number | null;
    };
  }
}
