#!/usr/bin/perl
# A plugin in Perl, written from docs/plugins.md and transform.proto alone: it has no library of its own to build on. It writes
# the country of JSON invoices in capitals.
use strict;
use warnings;
use Socket;

my ($name, $version, $doc) = ("acme/country-capitals", "2.0.1", "Writes countries in capitals.");

if (($ENV{REPRIEVE_PLUGIN} // "") ne "repair-transform") {
    print STDERR "This is a plugin of Reprieve; judge it with: reprieve conform FOLDER\n";
    exit 1;
}

# --- the repair

my $field = "country";

sub configure {
    my ($config) = @_;
    $field = $1 if $config =~ /"field"\s*:\s*"([a-z_]+)"/;
}

# repair answers (outcome, value or reason): 1 repaired, 2 unchanged, 3 rejected.
sub repair {
    my ($value) = @_;
    return (3, "a delete marker has no country") unless defined $value;
    return (3, "no country of two letters is there once") unless 1 == (() = $value =~ /"\Q$field\E"\s*:\s*"[A-Za-z]{2}"/g);
    (my $new = $value) =~ s/("\Q$field\E"\s*:\s*")([A-Za-z]{2})"/$1 . uc($2) . '"'/e;
    return $new eq $value ? (2) : (1, $new);
}

# --- protocol buffers

sub varint { my $n = shift; my $s = ""; while ($n > 127) { $s .= chr($n & 127 | 128); $n >>= 7 } $s . chr($n) }
sub number { my ($f, $n) = @_; varint($f << 3) . varint($n) }
sub bytes { my ($f, $b) = @_; varint($f << 3 | 2) . varint(length $b) . $b }

# fields reads a message as a list of [field, value].
sub fields {
    my ($b) = @_;
    my ($at, @out) = (0);
    my $next = sub {
        my ($n, $shift) = (0, 0);
        while (1) {
            my $c = ord substr $b, $at++, 1;
            $n |= ($c & 127) << $shift;
            return $n if $c < 128;
            $shift += 7;
        }
    };
    while ($at < length $b) {
        my $key = $next->();
        my $wire = $key & 7;
        if ($wire == 0) { push @out, [$key >> 3, $next->()]; next }
        my $n = $wire == 2 ? $next->() : $wire == 1 ? 8 : 4;
        push @out, [$key >> 3, substr $b, $at, $n];
        $at += $n;
    }
    return @out;
}

# --- the calls: each returns (grpc-status, reply)

my $configured = 0;

sub call {
    my ($path, $request) = @_;
    my ($method) = $path =~ m{^/reprieve\.transform\.v1\.RepairTransform/(\w+)$};
    return (0, "\x08\x01") if $path eq "/grpc.health.v1.Health/Check";
    return (12, "") unless $method;
    if ($method eq "Describe") {
        return (0, bytes(1, $name) . bytes(2, $version) . number(3, 1) . bytes(5, $doc) . bytes(6, "transform"));
    }
    if ($method eq "Configure") {
        return (9, "") if $configured;
        my ($config) = map { $_->[1] } grep { $_->[0] == 1 } fields($request);
        configure($config // "{}");
        $configured = 1;
        return (0, "");
    }
    return (12, "") unless $method eq "Repair";
    return (9, "") unless $configured;
    my $out = "";
    for my $f (fields($request)) {
        $out .= number(1, $f->[1]) if $f->[0] == 1;
        next unless $f->[0] == 2;
        my ($item, $value) = ("", undef);
        for my $e (fields($f->[1])) {
            $item = $e->[1] if $e->[0] == 1;
            if ($e->[0] == 7) {
                for my $n (fields($e->[1])) { $value = $n->[1] if $n->[0] == 1 }
            }
        }
        my ($outcome, $what) = repair($value);
        my $result = bytes(1, $item) . number(2, $outcome);
        $result .= bytes(4, bytes(1, $what)) . bytes(7, bytes(1, "/$field")) if $outcome == 1;
        $result .= bytes(8, $what) if $outcome == 3;
        $out .= bytes(2, $result);
    }
    return (0, $out);
}

# --- HPACK

my @static = ("", map { [/^(:?[^=]+)=?(.*)$/] } split /\|/,
    ":authority|:method=GET|:method=POST|:path=/|:path=/index.html|:scheme=http|:scheme=https|:status=200|:status=204|:status=206|:status=304|"
  . ":status=400|:status=404|:status=500|accept-charset|accept-encoding=gzip, deflate|accept-language|accept-ranges|accept|"
  . "access-control-allow-origin|age|allow|authorization|cache-control|content-disposition|content-encoding|content-language|content-length|"
  . "content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|"
  . "if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|"
  . "server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate");
my @dynamic;

# The Huffman code is canonical: the lengths of its 256 bytes say all of it. "A" is 5 bits.
my %huffman;
{
    my @lengths = map { ord($_) - 60 } split //,
        "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJBKABABABBBACCBBBABCBAABCCCCCKGJI"
      . "XPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWV";
    my ($code, $last) = (0, 0);
    for my $i (sort { $lengths[$a] <=> $lengths[$b] || $a <=> $b } 0 .. 255) {
        $code <<= $lengths[$i] - $last;
        $huffman{ sprintf "%0*b", $lengths[$i], $code++ } = chr $i;
        $last = $lengths[$i];
    }
}

sub path_of {
    my ($b) = @_;
    my ($at, $path) = (0, "");
    my $integer = sub {
        my ($bits) = @_;
        my $most = (1 << $bits) - 1;
        my $n = ord(substr $b, $at++, 1) & $most;
        return $n if $n < $most;
        my $shift = 0;
        while (1) {
            my $c = ord substr $b, $at++, 1;
            $n += ($c & 127) << $shift;
            return $n if $c < 128;
            $shift += 7;
        }
    };
    my $string = sub {
        my $coded = ord(substr $b, $at, 1) & 128;
        my $n = $integer->(7);
        my $raw = substr $b, $at, $n;
        $at += $n;
        return $raw unless $coded;
        my ($out, $code) = ("", "");
        for my $bit (split //, unpack "B*", $raw) {
            $code .= $bit;
            if (exists $huffman{$code}) { $out .= $huffman{$code}; $code = "" }
        }
        return $out;
    };
    my $entry = sub { my $n = shift; $n < @static ? $static[$n] : $dynamic[ $n - @static ] };
    while ($at < length $b) {
        my $c = ord substr $b, $at, 1;
        my ($key, $value);
        if ($c & 128) { ($key, $value) = @{ $entry->($integer->(7)) } }
        elsif (($c & 224) == 32) { $integer->(5); next }
        else {
            my $n = $integer->($c & 64 ? 6 : 4);
            $key = $n ? $entry->($n)[0] : $string->();
            $value = $string->();
            if ($c & 64) {
                unshift @dynamic, [$key, $value];
                my $size = 0;
                $size += 32 + length($_->[0]) + length $_->[1] for @dynamic;
                while ($size > 4096) { my $gone = pop @dynamic; $size -= 32 + length($gone->[0]) + length $gone->[1] }
            }
        }
        $path = $value if $key eq ":path";
    }
    return $path;
}

# --- HTTP/2

my ($conn, $window, $initial, $most, %streams);

sub frame { my ($kind, $flags, $stream, $body) = @_; substr(pack("N", length $body), 1) . chr($kind) . chr($flags) . pack("N", $stream) . $body }
sub put { my ($b) = @_; while (length $b) { my $n = syswrite $conn, $b; die "gone\n" unless $n; substr $b, 0, $n, "" } }
sub header { my ($k, $v) = @_; "\0" . chr(length $k) . $k . chr(length $v) . $v }

sub get {
    my ($n) = @_;
    my $b = "";
    while (length $b < $n) { my $got = sysread $conn, $b, $n - length $b, length $b; die "gone\n" unless $got }
    return $b;
}

sub step {
    my ($a, $kind, $flags, $stream) = unpack "a3CCN", get(9);
    my $body = get(unpack "N", "\0$a");
    if ($kind == 0) {
        put(frame(8, 0, 0, pack "N", length $body)) if length $body;
        $streams{$stream}{data} .= $body;
        answer($stream) if $flags & 1;
    } elsif ($kind == 1) {
        $body = substr $body, 5 if $flags & 32;
        until ($flags & 4) {
            my ($size, undef, $more) = unpack "a3CCN", get(9);
            $flags |= $more & 4;
            $body .= get(unpack "N", "\0$size");
        }
        $streams{$stream} = { path => path_of($body), data => "", window => $initial };
        answer($stream) if $flags & 1;
    } elsif ($kind == 3) {
        delete $streams{$stream};
    } elsif ($kind == 4 && !($flags & 1)) {
        while ($body =~ /(..)(....)/gs) {
            my ($id, $value) = (unpack("n", $1), unpack "N", $2);
            if ($id == 4) { $_->{window} += $value - $initial for values %streams; $initial = $value }
            $most = $value if $id == 5;
        }
        put(frame(4, 1, 0, ""));
    } elsif ($kind == 6 && !($flags & 1)) {
        put(frame(6, 1, 0, $body));
    } elsif ($kind == 8) {
        my $more = unpack("N", $body) & 0x7fffffff;
        if ($stream == 0) { $window += $more } elsif ($streams{$stream}) { $streams{$stream}{window} += $more }
    }
}

sub answer {
    my ($stream) = @_;
    my ($status, $reply) = call($streams{$stream}{path}, substr $streams{$stream}{data}, 5);
    my $ok = "\x88" . header("content-type", "application/grpc");
    if ($status) {
        delete $streams{$stream};
        return put(frame(1, 5, $stream, $ok . header("grpc-status", $status)));
    }
    put(frame(1, 4, $stream, $ok));
    my $data = pack("CN", 0, length $reply) . $reply;
    while (length $data) {
        return unless $streams{$stream};
        my ($room) = sort { $a <=> $b } $window, $streams{$stream}{window}, $most, length $data;
        if ($room <= 0) { step(); next }
        $window -= $room;
        $streams{$stream}{window} -= $room;
        put(frame(0, 0, $stream, substr $data, 0, $room, ""));
    }
    delete $streams{$stream};
    put(frame(1, 5, $stream, header("grpc-status", "0")));
}

my $socket = "$ENV{PLUGIN_UNIX_SOCKET_DIR}/perl.sock";
socket my $listener, PF_UNIX, SOCK_STREAM, 0 or die "socket: $!";
bind $listener, sockaddr_un($socket) or die "bind: $!";
listen $listener, 4 or die "listen: $!";
$| = 1;
print "1|1|unix|$socket|grpc\n";
while (accept $conn, $listener) {
    ($window, $initial, $most, %streams) = (65535, 65535, 16384);
    @dynamic = ();
    eval {
        get(24);
        put(frame(4, 0, 0, pack "nNnN", 4, 0x7fffffff, 5, 1 << 20) . frame(8, 0, 0, pack "N", 1 << 30));
        step() while 1;
    };
    print STDERR $@ unless $@ eq "gone\n";
    close $conn;
}
