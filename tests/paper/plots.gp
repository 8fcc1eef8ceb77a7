# plots.gp: the pictures of the report, from the .dat files beside it.
set terminal pngcairo size 960,600 font "sans,11"
set grid ytics lc rgb "#dddddd"
set key outside bottom center horizontal

set output "rsa_table4.png"
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.8 border -1
set ylabel "MiB a device"
set xlabel "P x B x S"
set xtics rotate by -30
set arrow from -1,16384 to 8,16384 nohead dashtype 2
set label "16 GiB" at -0.9,16900
plot "rsa_table4.dat" using 2:xtic(1) title "TP printed (none: out of memory)", "" using 3 title "TP ours", \
     "" using 4 title "RSA printed", "" using 5 title "RSA ours"
unset arrow
unset label
set xtics norotate

set style data linespoints
set output "rsa_length.png"
set logscale xy 2
set xlabel "devices"
set ylabel "tokens"
plot "rsa_length.dat" using 1:2 title "RSA", "" using 1:3 title "TP+SP (12 heads at most)", \
     "" using 1:4 title "blockwise ring"

set output "lasp_bytes.png"
set format xy "%.0b%B"
set xlabel "tokens in the sequence"
set ylabel "bytes, all ranks, one layer forward"
plot "lasp_bytes.dat" using 1:2 title "LASP ring, scan", "" using 1:3 title "LASP-2 all-gather", \
     "" using 1:4 title "Ulysses", "" using 1:5 title "ring attention", "" using 1:6 title "TP+SP"

set output "dsp_bytes.png"
set format x "%.0f"
set xlabel "ranks"
set ylabel "bytes a rank sends for a pair of blocks"
plot "dsp_bytes.dat" using 1:2 title "DSP", "" using 1:3 title "Ulysses, one dimension", \
     "" using 1:4 title "Open-Sora 1.2", "" using 1:5 title "Ulysses, both", \
     "" using 1:6 title "Open-Sora 1.0", "" using 1:7 title "TP+SP", "" using 1:8 title "ring"
