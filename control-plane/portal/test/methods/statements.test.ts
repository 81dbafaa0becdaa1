import { countRows } from '@matting/core/test/counting-rows.ts';
import ava from 'ava';
import { PORTAL_SUITE } from './portal-suite.ts';

await countRows(ava.serial, PORTAL_SUITE);
