/** The rows that every statement of the portal reads. */
import ava from 'ava';
import { countRows } from '../../../core/test/counting-rows.ts';
import { PORTAL_SUITE } from './portal-suite.ts';

await countRows(ava.serial, PORTAL_SUITE);
