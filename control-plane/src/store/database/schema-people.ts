/** The tables of people and what they change, as Kysely sees them (migrations/0009, 0017). */
import type { Generated } from 'kysely';
import type { Actor } from '../../domain/account/actor.ts';
import type { Role } from '../../domain/account/roles.ts';

export interface UsersTable {
  id: string;
  /** As it was typed; of people of an identity provider their name (providerName). */
  mail: string;
  /** mailKeyOf the mail; null: known by an identity provider alone, and found by no mail. */
  mail_key: string | null;
  /** Null: no password was set. */
  password_hash: string | null;
  /** Null: what the browser asks for. */
  language: string | null;
  created_at: number;
  disabled_at: number | null;
  /**
   * Since when the mail is theirs for sure: they came by a link that its mail alone, or the
   * operator, brought. Null: somebody typed it, or it is of a row from before there was a column.
   */
  proven_at: number | null;
  /** Counts what kept others out of this row, where engines certify. */
  turns: Generated<number>;
}

/** Who a person is elsewhere (OpenID Connect). */
export interface IdentitiesTable {
  issuer: string;
  subject: string;
  user_id: string;
  created_at: number;
}

export type MemberSource = 'invited' | 'oidc' | 'operator';

export interface MembersTable {
  account_id: string;
  user_id: string;
  role: Role;
  /** 'oidc': by a group of the identity provider, judged again at each sign-in. */
  source: MemberSource;
  created_at: number;
}

export type LinkPurpose = 'invitation' | 'sign-in';

export interface OneTimeLinksTable {
  id: string;
  /** SHA-256 of the token, hexadecimal. */
  token_hash: string;
  purpose: LinkPurpose;
  account_id: string;
  mail: string;
  role: Role;
  /** Who made it: a mail, or `operator`. */
  created_by: string;
  created_at: number;
  expires_at: number;
  used_at: number | null;
  /** 1: who opens it has that mail. Null: another person has seen it too, or made it long ago. */
  proves_mail: number | null;
  /** The person who made it; null: the operator, or nobody knows. */
  made_by: string | null;
}

export type SignInMethod = 'password' | 'oidc' | 'link';

export interface SessionsTable {
  /** What lists and forms call it; no secret. */
  id: string;
  /** SHA-256 of what the cookie holds, hexadecimal. */
  id_hash: string;
  user_id: string;
  /** The account that the person acts for. */
  account_id: string;
  method: SignInMethod;
  created_at: number;
  /** Up to a minute late. */
  seen_at: number;
  /** The absolute bound. */
  expires_at: number;
  address: string;
  /** The browser's words about itself. */
  agent: string;
}

/** Failed sign-ins of an address or a mail: domain/account/sign-in-throttle.ts. */
export interface SignInThrottlesTable {
  key_hash: string;
  window_start: number;
  failures: number;
}

/** Append-only, until its time is over. */
export interface AuditEntriesTable {
  id: string;
  account_id: string;
  created_at: number;
  actor_kind: Actor['kind'];
  actor_user_id: string | null;
  actor_mail: string | null;
  address: string | null;
  action: string;
  subject: string;
  /** JSON objects. */
  value_before: string | null;
  value_after: string | null;
}

export interface PeopleSchema {
  users: UsersTable;
  identities: IdentitiesTable;
  members: MembersTable;
  one_time_links: OneTimeLinksTable;
  sessions: SessionsTable;
  sign_in_throttles: SignInThrottlesTable;
  audit_entries: AuditEntriesTable;
}
